// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const (
	// eventMark is the name of the OpenTelemetry event that sets a mark.
	eventMark = "gpu_gadgets.mark"
	// eventAttribute has the name where the SDK is older than the field for it
	// (OTLP before 1.5).
	eventAttribute = "event.name"
	// maxEvents bounds a request, in bytes, before and after it is decompressed.
	maxEvents = 4 << 20

	typeProtobuf, typeJSON = "application/x-protobuf", "application/json"
)

// serveEvents takes logs by OTLP over HTTP, in either encoding, and sets one mark for a
// request that has events of that name; other logs are accepted and dropped. It answers
// before the mark is set: an exporter sends nothing else while it waits. A mark too many is rejected in
// the answer, and not by its status, for which an exporter would send it again.
func (i *instance) serveEvents(m *marks, w http.ResponseWriter, r *http.Request) {
	if isFromPage(w, r) {
		return
	}
	select {
	case <-m.done:
		http.Error(w, "the run has ended", http.StatusServiceUnavailable)
		return
	default:
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != typeProtobuf && kind != typeJSON {
		http.Error(w, "want logs as "+typeProtobuf+" or "+typeJSON, http.StatusUnsupportedMediaType)
		return
	}
	request, err := readEvents(kind, r.Header.Get("Content-Encoding"), http.MaxBytesReader(w, r.Body, maxEvents))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &collector.ExportLogsServiceResponse{}
	if hasMark(request) {
		if err := i.askFor(m, nil); err != nil {
			answer.PartialSuccess = &collector.ExportLogsPartialSuccess{RejectedLogRecords: 1, ErrorMessage: err.Error()}
		}
	}
	writeAnswer(w, kind, answer)
}

func writeAnswer(w http.ResponseWriter, kind string, answer *collector.ExportLogsServiceResponse) {
	body, err := proto.Marshal(answer)
	if kind == typeJSON {
		body, err = protojson.Marshal(answer)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body)
}

func readEvents(kind, encoding string, from io.Reader) (*collector.ExportLogsServiceRequest, error) {
	switch encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, fmt.Errorf("decompress the logs: %w", err)
		}
		from = z
	default:
		return nil, fmt.Errorf("logs compressed by %q: want gzip or none", encoding)
	}
	body, err := io.ReadAll(io.LimitReader(from, maxEvents+1))
	if err != nil {
		return nil, fmt.Errorf("read the logs: %w", err)
	}
	if len(body) > maxEvents {
		return nil, errors.New("read the logs: more than 4 MiB")
	}
	request := &collector.ExportLogsServiceRequest{}
	if kind == typeJSON {
		// Ids are hexadecimal there, which is read as base64 and not used.
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, request)
	} else {
		err = proto.Unmarshal(body, request)
	}
	if err != nil {
		return nil, fmt.Errorf("decode the logs: %w", err)
	}
	return request, nil
}

func hasMark(request *collector.ExportLogsServiceRequest) bool {
	for _, resource := range request.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, record := range scope.LogRecords {
				if nameOf(record) == eventMark {
					return true
				}
			}
		}
	}
	return false
}

func nameOf(record *logs.LogRecord) string {
	if record.EventName != "" {
		return record.EventName
	}
	for _, a := range record.Attributes {
		if a.GetKey() == eventAttribute {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// isFromPage refuses what a page of some site, open in a browser here, asks for.
func isFromPage(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Origin") == "" {
		return false
	}
	http.Error(w, "marks are not set by web pages", http.StatusForbidden)
	return true
}
