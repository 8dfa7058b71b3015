// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/pprof/profile"
	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/push/v1/pushv1connect"
	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	profilesv1 "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	logsrecords "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
)

// backend is Pyroscope and an OTLP receiver over HTTP.
type backend struct {
	*httptest.Server
	status atomic.Int32 // answered to everything, unless 0

	mu       sync.Mutex
	alloc    int64             // sum of cuda_alloc's bytes
	inuse    int64             // cuda_inuse's bytes of the latest window
	labels   map[string]string // of a series of the compatible profile
	hardware string            // hw.id of a sample over OTLP
	otlp     int64             // sum of alloc_space over OTLP
	ooms     int
	requests int
	records  []*logsrecords.LogRecord // in the order of their coming
	// withoutProfiles: it answers that it does not accept profiles over OTLP.
	withoutProfiles bool
}

func newBackend(t *testing.T) *backend {
	b := &backend{}
	mux := http.NewServeMux()
	mux.Handle(pushv1connect.NewPusherServiceHandler(b))
	mux.HandleFunc("/v1development/profiles", b.profiles)
	mux.HandleFunc("/v1/logs", b.logs)
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := b.status.Load(); status != 0 {
			http.Error(w, "no", int(status))
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) Push(_ context.Context, r *connect.Request[pushv1.PushRequest]) (*connect.Response[pushv1.PushResponse], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests++
	for _, s := range r.Msg.Series {
		labels := map[string]string{}
		for _, l := range s.Labels {
			labels[l.Name] = l.Value
		}
		p, err := profile.Parse(bytes.NewReader(s.Samples[0].RawProfile))
		if err != nil {
			return nil, err
		}
		sum := int64(0)
		for _, sample := range p.Sample {
			sum += sample.Value[len(sample.Value)-1]
		}
		switch labels["__name__"] {
		case "cuda_alloc":
			b.alloc += sum
		case "cuda_inuse":
			b.inuse = sum
		case "process_cpu":
			b.labels = labels
		}
	}
	return connect.NewResponse(&pushv1.PushResponse{}), nil
}

func (b *backend) profiles(w http.ResponseWriter, r *http.Request) {
	if b.withoutProfiles {
		http.NotFound(w, r)
		return
	}
	request := &profilesv1.ExportProfilesServiceRequest{}
	if !read(w, r, request) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range request.ResourceProfiles {
		for _, p := range resource.ScopeProfiles[0].Profiles {
			if request.Dictionary.StringTable[p.SampleType.TypeStrindex] == "alloc_space" {
				for _, s := range p.Samples {
					b.otlp += s.Values[0]
					for _, i := range s.AttributeIndices {
						if a := request.Dictionary.AttributeTable[i]; request.Dictionary.StringTable[a.KeyStrindex] == "hw.id" {
							b.hardware = a.Value.GetStringValue()
						}
					}
				}
			}
		}
	}
}

func (b *backend) logs(w http.ResponseWriter, r *http.Request) {
	request := &logsv1.ExportLogsServiceRequest{}
	if read(w, r, request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.ooms += len(request.ResourceLogs)
		for _, r := range request.ResourceLogs {
			b.records = append(b.records, r.ScopeLogs[0].LogRecords...)
		}
	}
}

func read(w http.ResponseWriter, r *http.Request, to proto.Message) bool {
	zip, err := gzip.NewReader(r.Body)
	if err == nil {
		var body []byte
		if body, err = io.ReadAll(zip); err == nil {
			err = proto.Unmarshal(body, to)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}
