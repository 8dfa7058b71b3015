// SPDX-License-Identifier: Apache-2.0

// Package label makes the labels that identify the observed process in metrics, so that
// all its series have the same ones.
package label

import (
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/labels"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Process are the labels of a process, the same ones for every process whether it is in
// a container or not: series must not gain labels later.
func Process(p profile.Process) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("k8s.namespace.name", Valid(p.Namespace)),
		attribute.String("k8s.pod.name", Valid(p.Pod)),
		attribute.String("k8s.container.name", Valid(p.Container)),
		attribute.Int64("process.pid", int64(p.PID)),
		attribute.String("process.comm", Valid(p.Comm)),
	}
	for _, l := range labels.Decode(p.Labels) {
		all = append(all, attribute.String(l[0], Valid(l[1])))
	}
	return all
}

// Valid turns a name chosen by a process into a valid label, which must be UTF-8
// (protobuf and Prometheus refuse the whole message otherwise).
func Valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
