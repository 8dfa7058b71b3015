// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // to accept compressed requests
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// receiver decodes with the collector's own code, not with ours.
type receiver struct {
	pprofileotlp.UnimplementedGRPCServer
	mu       sync.Mutex
	got      []pprofile.Profiles
	logs     []*logs.ExportLogsServiceRequest
	header   http.Header
	rejected int64 // is answered
}

func (r *receiver) take(request pprofileotlp.ExportRequest) pprofileotlp.ExportResponse {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := pprofile.NewProfiles()
	request.Profiles().CopyTo(p)
	r.got = append(r.got, p)
	answer := pprofileotlp.NewExportResponse()
	if r.rejected > 0 {
		answer.PartialSuccess().SetRejectedProfiles(r.rejected)
		answer.PartialSuccess().SetErrorMessage("too\nold")
	}
	return answer
}

func (r *receiver) Export(ctx context.Context, request pprofileotlp.ExportRequest) (pprofileotlp.ExportResponse, error) {
	r.mu.Lock()
	r.header = http.Header{}
	m, _ := metadata.FromIncomingContext(ctx)
	for name, values := range m {
		r.header[http.CanonicalHeaderKey(name)] = values
	}
	r.mu.Unlock()
	return r.take(request), nil
}

// logReceiver is apart: both have a method Export.
type logReceiver struct {
	logs.UnimplementedLogsServiceServer
	*receiver
}

func (r logReceiver) Export(_ context.Context, request *logs.ExportLogsServiceRequest) (*logs.ExportLogsServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.receiver.logs = append(r.receiver.logs, request)
	return &logs.ExportLogsServiceResponse{}, nil
}

// handler accepts both protocols.
func (r *receiver) handler() http.Handler {
	g := grpc.NewServer()
	pprofileotlp.RegisterGRPCServer(g, r)
	logs.RegisterLogsServiceServer(g, logReceiver{receiver: r})
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Content-Type") == "application/grpc" {
			g.ServeHTTP(w, q)
			return
		}
		r.serve(w, q)
	})
}

func (r *receiver) serve(w http.ResponseWriter, q *http.Request) {
	zip, err := gzip.NewReader(q.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(zip)
	if err != nil || q.Method != http.MethodPost || q.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, fmt.Sprint("what is this: ", err), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.header = q.Header
	r.mu.Unlock()
	var answer []byte
	switch q.URL.Path {
	case "/v1development/profiles":
		request := pprofileotlp.NewExportRequest()
		if err = request.UnmarshalProto(body); err == nil {
			answer, err = r.take(request).MarshalProto()
		}
	case "/v1/logs":
		request := &logs.ExportLogsServiceRequest{}
		if err = proto.Unmarshal(body, request); err == nil {
			_, err = logReceiver{receiver: r}.Export(q.Context(), request)
		}
	default:
		http.NotFound(w, q)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = w.Write(answer)
}

// stored is one sample, read back.
type stored struct {
	profile, sampleType string
	labels              string
	frames              []string // leaf first: name file:line type library
	value               int64
	start, duration     int64
	period              int64
}

func (r *receiver) stored() (all []stored) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.got {
		d := p.Dictionary()
		texts := d.StringTable().AsRaw()
		attributes := func(indices pcommon.Int32Slice) string {
			var list []string
			for _, i := range indices.AsRaw() {
				a := d.AttributeTable().At(int(i))
				list = append(list, texts[a.KeyStrindex()]+"="+a.Value().AsString())
			}
			return strings.Join(list, ",")
		}
		for _, rp := range p.ResourceProfiles().All() {
			if rp.Resource().Attributes().Len() > 0 {
				panic("the resource has attributes")
			}
			for _, sp := range rp.ScopeProfiles().All() {
				for _, one := range sp.Profiles().All() {
					for _, s := range one.Samples().All() {
						v := stored{
							profile: texts[one.PeriodType().TypeStrindex()] + " " + texts[one.PeriodType().UnitStrindex()], period: one.Period(),
							sampleType: texts[one.SampleType().TypeStrindex()] + " " + texts[one.SampleType().UnitStrindex()],
							labels:     attributes(s.AttributeIndices()), value: s.Values().At(0),
							start: int64(one.Time()), duration: int64(one.DurationNano()),
						}
						for _, l := range d.StackTable().At(int(s.StackIndex())).LocationIndices().AsRaw() {
							location := d.LocationTable().At(int(l))
							line := location.Lines().At(0)
							f := d.FunctionTable().At(int(line.FunctionIndex()))
							v.frames = append(v.frames, frameName(texts[f.NameStrindex()], texts[f.FilenameStrindex()], line.Line(),
								attributes(location.AttributeIndices())))
						}
						all = append(all, v)
					}
				}
			}
		}
	}
	return all
}

func frameName(function, file string, line int64, attributes string) string {
	return fmt.Sprintf("%s %s:%d %s", function, file, line, attributes)
}

// sums are self and total by frame of one sample type.
func sums(all []stored, sampleType string) map[string][2]int64 {
	m := map[string][2]int64{}
	for _, s := range all {
		if s.sampleType != sampleType {
			continue
		}
		for i, f := range s.frames {
			v := m[f]
			if i == 0 {
				v[0] += s.value
			}
			if !slices.Contains(s.frames[:i], f) {
				v[1] += s.value
			}
			m[f] = v
		}
	}
	return m
}
