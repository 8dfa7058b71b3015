// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"math"
	"strconv"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// number reads an integer of any width; 0 if the field is absent.
func number(f datasource.FieldAccessor, d datasource.Data) int64 {
	if f == nil {
		return 0
	}
	switch f.Type() {
	case api.Kind_Uint64:
		v, _ := f.Uint64(d)
		return int64(min(v, math.MaxInt64))
	case api.Kind_Int64:
		v, _ := f.Int64(d)
		return v
	case api.Kind_Uint32:
		v, _ := f.Uint32(d)
		return int64(v)
	case api.Kind_Int32:
		v, _ := f.Int32(d)
		return int64(v)
	}
	return 0
}

func text(f datasource.FieldAccessor, d datasource.Data) string {
	if f == nil {
		return ""
	}
	s, _ := f.String(d)
	return s
}

// seriesFields are those of events about a process's memory. Rows are read by
// package rows.
type seriesFields struct {
	process, pid, comm                 datasource.FieldAccessor
	namespace, pod, container, runtime datasource.FieldAccessor
	kind, kindRaw, device, labels      datasource.FieldAccessor
}

func bindSeries(ds datasource.DataSource) (seriesFields, error) {
	f := seriesFields{
		process: ds.GetField("process"), pid: ds.GetField("proc.pid"), comm: ds.GetField("proc.comm"),
		namespace: ds.GetField("k8s.namespace"), pod: ds.GetField("k8s.podName"),
		container: ds.GetField("k8s.containerName"), runtime: ds.GetField("runtime.containerName"),
		kind: ds.GetField("kind"), kindRaw: ds.GetField("kind_raw"), device: ds.GetField("device"),
		labels: ds.GetField("labels"),
	}
	if f.process == nil || f.pid == nil {
		return f, fmt.Errorf("data source %s has no process or proc.pid", ds.Name())
	}
	return f, nil
}

func (f *seriesFields) read(d datasource.Data) Series {
	s := Series{Process: profile.Process{
		PID: uint32(number(f.pid, d)), Comm: text(f.comm, d),
		Namespace: text(f.namespace, d), Pod: text(f.pod, d), Container: text(f.container, d), Labels: text(f.labels, d),
	}, Kind: text(f.kind, d), Device: profile.UnknownDevice}
	s.Process.ID, _ = f.process.Uint64(d) // all 64 bits: it is a hash
	if s.Process.Container == "" {
		s.Process.Container = text(f.runtime, d)
	}
	if s.Kind == "" && f.kindRaw != nil {
		s.Kind = strconv.FormatInt(number(f.kindRaw, d), 10)
	}
	if f.device != nil {
		s.Device = int32(number(f.device, d))
	}
	return s
}
