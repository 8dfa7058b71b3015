// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"
)

// request is logs of one exporter, in protobuf.
func request(t *testing.T, records ...*logs.LogRecord) string {
	t.Helper()
	b, err := proto.Marshal(&collector.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{
		{}, {ScopeLogs: []*logs.ScopeLogs{{LogRecords: records}}},
	}})
	require.NoError(t, err)
	return string(b)
}

func compressed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

func TestAnOpenTelemetryEventSetsAMark(t *testing.T) {
	event := &logs.LogRecord{EventName: eventMark, TraceId: make([]byte, 16)}
	older := &logs.LogRecord{Attributes: []*common.KeyValue{
		{Key: "other"},
		{Key: eventAttribute, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: eventMark}}},
	}}
	other := &logs.LogRecord{EventName: "other", Body: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: eventMark}}}
	// As SDKs write it: ids in hexadecimal, numbers of 64 bits as text, fields to come.
	const text = `{"resourceLogs": [{"resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "llm"}}]},
		"scopeLogs": [{"scope": {"name": "app"}, "logRecords": [{"timeUnixNano": "1700000000000000000", "severityNumber": 9,
		"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "eventName": "gpu_gadgets.mark",
		"someday": {"more": 1}}]}]}]}`
	for _, c := range []struct {
		name, kind, encoding, body string
		code, marks                int
	}{
		{"an event", typeProtobuf, "", request(t, other, event), 200, 1},
		{"two at once", typeProtobuf, "identity", request(t, event, event), 200, 1},
		{"of an older SDK", typeProtobuf, "", request(t, older), 200, 1},
		{"compressed", typeProtobuf, "gzip", compressed(t, request(t, event)), 200, 1},
		{"in JSON", typeJSON + "; charset=utf-8", "", text, 200, 1},
		{"other logs", typeProtobuf, "", request(t, other), 200, 0},
		{"none", typeProtobuf, "", "", 200, 0},
		{"no logs", typeProtobuf, "", "\xff\xff", 400, 0},
		{"no JSON", typeJSON, "", "{", 400, 0},
		{"not compressed", typeProtobuf, "gzip", request(t, event), 400, 0},
		{"compressed otherwise", typeProtobuf, "zstd", request(t, event), 400, 0},
		{"too large", typeProtobuf, "gzip", compressed(t, string(make([]byte, maxEvents+1))), 400, 0},
		{"of another kind", "text/plain", "", text, 415, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			i, m := &instance{}, newMarks("")
			r := httptest.NewRequest(http.MethodPost, "/v1/logs", bytes.NewReader([]byte(c.body)))
			r.Header.Set("Content-Type", c.kind)
			r.Header.Set("Content-Encoding", c.encoding)
			w := httptest.NewRecorder()
			i.serveEvents(m, w, r)
			require.Equal(t, c.code, w.Code, w.Body)
			require.Len(t, m.asked, c.marks)
			if c.code == 200 && c.kind == typeProtobuf {
				require.NoError(t, proto.Unmarshal(w.Body.Bytes(), &collector.ExportLogsServiceResponse{}))
				require.Equal(t, typeProtobuf, w.Header().Get("Content-Type"))
			}
		})
	}
}

func TestEventsOfAPageOrBehindTheEndAreRefused(t *testing.T) {
	i, m := &instance{}, newMarks("")
	call := func(origin string) int {
		r := httptest.NewRequest(http.MethodPost, "/v1/logs", bytes.NewReader([]byte(request(t, &logs.LogRecord{EventName: eventMark}))))
		r.Header.Set("Content-Type", typeProtobuf)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		i.serveEvents(m, w, r)
		return w.Code
	}
	require.Equal(t, http.StatusForbidden, call("https://example.com"))
	close(m.done)
	require.Equal(t, http.StatusServiceUnavailable, call(""))
	require.Empty(t, m.asked)
}

// Anybody on the machine may send marks.
func FuzzReadEvents(f *testing.F) {
	for _, kind := range []string{typeProtobuf, typeJSON} {
		f.Add(kind, "", []byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"eventName":"gpu_gadgets.mark"}]}]}]}`))
		f.Add(kind, "gzip", []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, kind, encoding string, body []byte) {
		request, err := readEvents(kind, encoding, bytes.NewReader(body))
		if err != nil {
			require.Nil(t, request)
			return
		}
		hasMark(request)
	})
}
