// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"encoding/binary"
	"fmt"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

const (
	// EventOOM is the event name of an allocation for which there was no memory.
	EventOOM = "cuda.out_of_memory"
	// EventFailed is that of one that failed for another reason.
	EventFailed = "cuda.allocation_failed"
)

// OOM makes a log of one allocation that failed: a human-readable line, and attributes for
// queries. Its resource is the service, because logs are searched by it. It is an error if
// there was no memory, else a warning.
func (e *Encoder) OOM(o profile.OOM) *collector.ExportLogsServiceRequest {
	held := profile.Held{API: o.API, Device: o.Device, RowsBytes: o.InuseBytes, PoolBytes: o.PoolBytes} // the holders are an attribute
	record := &logs.LogRecord{
		TimeUnixNano: uint64(max(0, o.Time.UnixNano())), ObservedTimeUnixNano: uint64(max(0, o.Time.UnixNano())),
		SeverityNumber: logs.SeverityNumber_SEVERITY_NUMBER_ERROR, SeverityText: "ERROR", EventName: EventOOM,
		Body: anyText(fmt.Sprintf("%s[%d] %s at %s: %s; %s", o.Process.Comm, o.Process.PID,
			profile.Request(o.API, o.RequestedBytes, o.Device), o.Stack.Where(), profile.ErrorBy(o.Error, o.RefusedBy), held)),
		Attributes: append([]*common.KeyValue{
			keyValue("error.type", anyText(o.Error)),
			keyValue("process.executable.name", anyText(o.Process.Comm)),
			keyValue("cuda.api", anyText(o.API)),
			keyValue("cuda.memory.refused_by", anyText(o.RefusedBy)),
			keyValue("cuda.memory.requested", anyNumber(o.RequestedBytes)),
			keyValue("cuda.memory.inuse", anyNumber(o.InuseBytes)),
			keyValue("cuda.memory.holders", holders(o.Holders)),
		}, codeOf(o.Stack)...),
	}
	if o.Device >= 0 {
		record.Attributes = append(record.Attributes, keyValue("cuda.device", anyNumber(int64(o.Device))))
	}
	if o.PoolBytes > 0 {
		record.Attributes = append(record.Attributes, keyValue("cuda.memory.pool", anyNumber(o.PoolBytes)))
	}
	if !profile.IsOutOfMemory(o.Error) {
		record.SeverityNumber, record.SeverityText, record.EventName = logs.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN", EventFailed
	}
	if o.Span != 0 {
		record.SpanId = binary.BigEndian.AppendUint64(nil, uint64(o.Span))
	}
	return e.request(o.Process, record)
}

// codeOf returns the program's line at the end of a stack, and the whole stack.
func codeOf(s stack.Stack) []*common.KeyValue {
	self := s.User()
	return []*common.KeyValue{
		keyValue("code.function.name", anyText(self.Function)),
		keyValue("code.file.path", anyText(self.File)),
		keyValue("code.line.number", anyNumber(int64(self.Line))),
		keyValue("code.stacktrace", anyText(s.Folded())),
	}
}

// request has one record, whose resource is the service that the process belongs to.
func (e *Encoder) request(p profile.Process, record *logs.LogRecord) *collector.ExportLogsServiceRequest {
	config := e.Series
	config.PIDs = p.PID != 0 // an event is not a series
	var service []*common.KeyValue
	for _, a := range attributesOf(config.Key(profile.Row{Process: p, Device: profile.UnknownDevice})) {
		service = append(service, keyValue(a.key, anyText(a.value)))
	}
	return &collector.ExportLogsServiceRequest{ResourceLogs: []*logs.ResourceLogs{{
		Resource:  &resource.Resource{Attributes: service},
		ScopeLogs: []*logs.ScopeLogs{{Scope: &common.InstrumentationScope{Name: scopeName}, LogRecords: []*logs.LogRecord{record}}},
	}}}
}

func holders(all []profile.Holder) *common.AnyValue {
	list := &common.ArrayValue{}
	for _, h := range all {
		list.Values = append(list.Values, &common.AnyValue{Value: &common.AnyValue_KvlistValue{KvlistValue: &common.KeyValueList{
			Values: []*common.KeyValue{keyValue("bytes", anyNumber(h.Bytes)), keyValue("stack", anyText(h.Stack.Folded()))},
		}}})
	}
	return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
}

func keyValue(key string, value *common.AnyValue) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: value}
}

func anyText(s string) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: valid(s)}}
}

func anyNumber(n int64) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: n}}
}
