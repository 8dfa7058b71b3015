// SPDX-License-Identifier: Apache-2.0

// Package pyroscope sends windows to Grafana Pyroscope with its push API, push.v1:
// one pprof for each series and profile of a window, with names, files and lines.
//
// Pyroscope adds up all profiles in a query's range. That is right for flows; levels have
// another name (series.Inuse), to be queried over one interval.
package pyroscope

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	userlabels "github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// maxRows of one pprof: half of what Pyroscope 1.21 takes by default
	// (validation.max-profile-stacktrace-samples, 16000).
	maxRows = 8000
	// maxBytes of one request, without compression and with its labels. Each of its series takes as
	// much from the tenant's bucket (distributor.ingestion-burst-size-mb, 2 MB), and is refused when
	// that has less: what is larger than the bucket is refused for ever.
	maxBytes = 1 << 20
	// maxProfile is the size without compression above which one pprof is divided: it has to fit in
	// the bucket, and in validation.max-profile-size-bytes (4 MiB).
	maxProfile = 3 << 19
)

// Encoder makes requests of windows. It must not be used concurrently.
type Encoder struct {
	Series series.Config
	// Levels are sent as well.
	Levels series.Levels
	// Compat sends allocated bytes a second time, as the published dashboard
	// "Advanced GPU Observability" queries them: the profile type
	// process_cpu:malloc:bytes:: with the labels k8s_namespace and k8s_podName.
	Compat bool
	// Apart reports whether the series with these labels is sent on its own; Client.Refused is
	// one. May be nil.
	Apart func([]*typesv1.LabelPair) bool

	pprof    pprof.WindowEncoder
	included []profile.Row // of one profile
}

// Request is one push.
type Request struct {
	Push     *pushv1.PushRequest
	Bytes    int64 // on the wire
	Unpacked int64 // before compression, about
}

// compatShape has no period type, because the requested id has none.
var compatShape = series.Shape{Name: "process_cpu", Columns: []series.Column{{Type: "malloc", Unit: "bytes", Value: profile.AllocSpace}}}

// Encode makes no request for a window without rows. The same window gives the same
// bytes.
func (e *Encoder) Encode(w window.Window) ([]Request, error) {
	shapes := series.Shapes(w.Subject, w.Period, e.Levels)
	if e.Compat && w.Subject == profile.Memory {
		shapes = append(shapes, compatShape)
	}
	var b batch
	for _, s := range e.Series.Group(w.Rows) {
		for _, shape := range shapes {
			e.included = e.included[:0]
			for i := range s.Rows {
				if shape.Includes(s.Rows[i]) {
					e.included = append(e.included, s.Rows[i])
				}
			}
			for part := range slices.Chunk(e.included, maxRows) {
				if err := e.part(&b, w, s.Key, shape, part); err != nil {
					return nil, fmt.Errorf("encode %s of %s: %w", shape.Name, s.Service, err)
				}
			}
		}
	}
	b.finish(b.current, b.size)
	return b.requests, nil
}

// part adds a pprof of the rows, or several if that is too large.
func (e *Encoder) part(b *batch, w window.Window, key series.Key, shape series.Shape, rows []profile.Row) error {
	raw, size, err := e.encode(w, shape, rows)
	if err != nil {
		return err
	}
	if size > maxProfile && len(rows) > 1 {
		half := len(rows) / 2
		if err := e.part(b, w, key, shape, rows[:half]); err != nil {
			return err
		}
		return e.part(b, w, key, shape, rows[half:])
	}
	one := &pushv1.RawProfileSeries{
		Labels: labels(key, shape, e.Compat),
		// The same for the same content, also when it is sent again.
		Samples: []*pushv1.RawSample{{RawProfile: raw, ID: uuid.NewSHA1(uuid.NameSpaceOID, raw).String()}},
	}
	for _, l := range one.Labels {
		size += len(l.Name) + len(l.Value)
	}
	if e.Apart != nil && e.Apart(one.Labels) {
		b.finish(&pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{one}}, size)
	} else {
		b.add(one, size)
	}
	return nil
}

// batch collects series in requests.
type batch struct {
	requests []Request
	current  *pushv1.PushRequest // nil: empty
	size     int                 // of current, without compression
}

func (b *batch) add(s *pushv1.RawProfileSeries, size int) {
	if b.current != nil && b.size+size > maxBytes {
		b.finish(b.current, b.size)
		b.current = nil
	}
	if b.current == nil {
		b.current, b.size = &pushv1.PushRequest{}, 0
	}
	b.current.Series = append(b.current.Series, s)
	b.size += size
}

func (b *batch) finish(push *pushv1.PushRequest, size int) {
	if push != nil {
		b.requests = append(b.requests, Request{push, int64(proto.Size(push)), int64(size)})
	}
}

func (e *Encoder) encode(w window.Window, shape series.Shape, rows []profile.Row) (raw []byte, size int, err error) {
	p := pprof.Window{
		Start: w.Start, Duration: w.End.Sub(w.Start), Rows: rows,
		PeriodType: shape.PeriodType, PeriodUnit: shape.PeriodUnit, Period: shape.Period,
	}
	for _, c := range shape.Columns {
		p.Columns = append(p.Columns, pprof.Column(c))
	}
	var out bytes.Buffer
	size, err = e.pprof.Encode(&out, p)
	return out.Bytes(), size, err
}

// labels are those of Grafana's own collectors.
func labels(k series.Key, shape series.Shape, compat bool) []*typesv1.LabelPair {
	all := []*typesv1.LabelPair{
		{Name: "__name__", Value: shape.Name}, {Name: "service_name", Value: k.Service},
		{Name: "cluster", Value: k.Cluster}, {Name: "node", Value: k.Node},
		{Name: "namespace", Value: k.Namespace}, {Name: "pod", Value: k.Pod}, {Name: "container", Value: k.Container},
		{Name: "device", Value: k.Device}, {Name: "gpu", Value: k.GPU}, {Name: "kind", Value: k.Kind}, {Name: "pid", Value: k.PID},
	}
	if compat {
		all = append(all, &typesv1.LabelPair{Name: "k8s_namespace", Value: k.Namespace}, &typesv1.LabelPair{Name: "k8s_podName", Value: k.Pod})
	}
	for _, l := range userlabels.Decode(k.Labels) {
		all = append(all, &typesv1.LabelPair{Name: l[0], Value: l[1]})
	}
	all = slices.DeleteFunc(all, func(l *typesv1.LabelPair) bool {
		// Names of processes can be any bytes; protobuf refuses invalid UTF-8.
		l.Value = strings.ToValidUTF8(l.Value, "\uFFFD")
		return l.Value == ""
	})
	slices.SortFunc(all, func(a, b *typesv1.LabelPair) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
