// SPDX-License-Identifier: Apache-2.0

package hangs

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
)

// logReceiver takes OTLP logs over HTTP, and no profiles.
type logReceiver struct {
	*httptest.Server
	mu      sync.Mutex
	records []*logs.LogRecord
}

func receiveLogs(t *testing.T) *logReceiver {
	r := &logReceiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/v1/logs" {
			http.NotFound(w, q)
			return
		}
		request := &collector.ExportLogsServiceRequest{}
		zip, err := gzip.NewReader(q.Body)
		if err == nil {
			var body []byte
			if body, err = io.ReadAll(zip); err == nil {
				err = proto.Unmarshal(body, request)
			}
		}
		if err != nil {
			t.Errorf("a request of logs: %v", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range request.ResourceLogs {
			r.records = append(r.records, resource.ScopeLogs[0].LogRecords...)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// find returns the log of a verdict; nil: it has not arrived.
func (r *logReceiver) find(reason, severity, text string) *logs.LogRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range r.records {
		if record.SeverityText != severity || record.Body.GetStringValue() != text {
			continue
		}
		for _, a := range record.Attributes {
			if a.Key == "nccl.verdict.reason" && a.Value.GetStringValue() == reason {
				return record
			}
		}
	}
	return nil
}
