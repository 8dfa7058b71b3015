// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// EventHang is the event name of a verdict on ranks of NCCL that wait for each other.
const EventHang = "nccl.verdict"

// Hang makes a log of a verdict: a human-readable line, and attributes for queries. Its
// resource is the service of the rank at fault.
func (e *Encoder) Hang(h profile.Hang) *collector.ExportLogsServiceRequest {
	attributes := []*common.KeyValue{
		keyValue("nccl.verdict.event", anyText(h.Event)),
		keyValue("nccl.verdict.reason", anyText(h.Reason)),
		keyValue("nccl.verdict.waited", anySeconds(h.Waited.Seconds())),
		keyValue("nccl.communicator.id", anyText(h.Communicator)),
	}
	for _, a := range []struct{ key, value string }{
		{"nccl.communicator.name", h.Name}, {"nccl.operation.name", h.Operation}, {"nccl.rank.state", h.State},
		{"nccl.rank.wchan", h.Wchan}, {"process.executable.name", h.Process.Comm}, {"nccl.ras.verdict", h.RAS},
	} {
		if a.value != "" {
			attributes = append(attributes, keyValue(a.key, anyText(a.value)))
		}
	}
	for _, a := range []struct {
		key     string
		value   int64
		present bool
	}{
		{"nccl.communicator.size", h.Size, h.Size > 0}, {"nccl.operation.sequence", h.Seq, h.Seq > 0}, {"nccl.rank", h.Rank, h.Rank >= 0},
	} {
		if a.present {
			attributes = append(attributes, keyValue(a.key, anyNumber(a.value)))
		}
	}
	for _, a := range []struct {
		key   string
		ranks []int64
	}{
		{"nccl.verdict.ranks", h.Ranks}, {"nccl.verdict.waiting", h.Waiting}, {"nccl.verdict.unseen", h.Unseen},
	} {
		if len(a.ranks) > 0 {
			attributes = append(attributes, keyValue(a.key, anyNumbers(a.ranks)))
		}
	}
	if len(h.Nodes) > 0 {
		attributes = append(attributes, keyValue("nccl.verdict.nodes", anyTexts(h.Nodes)))
	}
	if len(h.Stack) > 0 {
		attributes = append(attributes, codeOf(h.Stack)...)
	}
	at := uint64(max(0, h.Time.UnixNano()))
	severity := severityOf(h)
	return e.request(h.Process, &logs.LogRecord{
		TimeUnixNano: at, ObservedTimeUnixNano: at, SeverityNumber: severity, SeverityText: severityTexts[severity],
		EventName: EventHang, Body: anyText(h.Text), Attributes: attributes,
	})
}

var severityTexts = map[logs.SeverityNumber]string{
	logs.SeverityNumber_SEVERITY_NUMBER_INFO: "INFO", logs.SeverityNumber_SEVERITY_NUMBER_WARN: "WARN", logs.SeverityNumber_SEVERITY_NUMBER_ERROR: "ERROR",
}

// severityOf returns an error for a job that hangs, a warning for one that is slowed down
// and for verdicts that other nodes know more about, unless one is lost, or that need not be faults.
func severityOf(h profile.Hang) logs.SeverityNumber {
	switch {
	case h.Event == "cleared", h.Event == "ras" && h.RAS == "agrees":
		return logs.SeverityNumber_SEVERITY_NUMBER_INFO
	case h.Reason == "straggler", h.Reason == "elsewhere" && len(h.Nodes) == 0, h.Reason == "creating", h.Event == "ras":
		return logs.SeverityNumber_SEVERITY_NUMBER_WARN
	}
	return logs.SeverityNumber_SEVERITY_NUMBER_ERROR
}

func anySeconds(s float64) *common.AnyValue {
	return &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: s}}
}

func anyTexts(all []string) *common.AnyValue {
	list := &common.ArrayValue{}
	for _, s := range all {
		list.Values = append(list.Values, anyText(s))
	}
	return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
}

func anyNumbers(all []int64) *common.AnyValue {
	list := &common.ArrayValue{}
	for _, n := range all {
		list.Values = append(list.Values, anyNumber(n))
	}
	return &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: list}}
}
