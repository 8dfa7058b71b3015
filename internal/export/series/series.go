// SPDX-License-Identifier: Apache-2.0

// Package series names the rows of a window for backends: the series that a row belongs
// to, and the profiles that are made of them. Keys are deliberately small, because a
// backend stores every combination separately: pids are only part of them on request,
// thread ids never.
package series

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Key identifies a series. Empty fields are omitted.
type Key struct {
	// Service is the usual name: the workload, else the container, else the program.
	Service                               string
	Cluster, Node                         string
	Namespace, Pod, Container             string
	Device, GPU /* its UUID */, Kind, PID string
	// Labels are the user's, as in profile.Process; those without a value are omitted.
	Labels string
}

// Config of a run.
type Config struct {
	// Cluster and Node are where it runs; rows that have a node keep it.
	Cluster, Node string
	// PIDs makes a series of each process.
	PIDs bool
	// GPU returns the UUID of a process's CUDA device, "" if it is unknown. May be
	// nil.
	GPU func(p profile.Process, device int32) string
}

// Series are the rows of one key.
type Series struct {
	Key
	Rows []profile.Row
}

// Key of a row.
func (c Config) Key(r profile.Row) Key {
	p := r.Process
	k := Key{
		Service: cmp.Or(p.Workload, p.Container, p.Comm, "unknown"),
		Cluster: c.Cluster, Node: cmp.Or(p.Node, c.Node),
		Namespace: p.Namespace, Pod: p.Pod, Container: p.Container, Kind: r.Kind, Labels: p.Labels,
	}
	switch {
	case r.Device >= 0:
		k.Device = strconv.Itoa(int(r.Device))
		if c.GPU != nil {
			k.GPU = c.GPU(p, r.Device)
		}
	case r.Device == profile.UnknownDevice && r.Kind != "":
		k.Device = "unknown" // memory and calls have a device
	}
	if c.PIDs {
		k.PID = strconv.FormatUint(uint64(p.PID), 10)
	}
	return k
}

// Group groups rows by their series; within one they keep their order.
func (c Config) Group(rows []profile.Row) []Series {
	index := map[Key]int{}
	var all []Series
	for _, r := range rows {
		k := c.Key(r)
		i, ok := index[k]
		if !ok {
			i = len(all)
			index[k] = i
			all = append(all, Series{Key: k})
		}
		all[i].Rows = append(all[i].Rows, r)
	}
	slices.SortFunc(all, func(a, b Series) int { return a.compare(b.Key) })
	return all
}

func (k Key) compare(l Key) int {
	return cmp.Or(
		strings.Compare(k.Service, l.Service), strings.Compare(k.Cluster, l.Cluster), strings.Compare(k.Node, l.Node),
		strings.Compare(k.Namespace, l.Namespace), strings.Compare(k.Pod, l.Pod), strings.Compare(k.Container, l.Container),
		strings.Compare(k.Device, l.Device), strings.Compare(k.GPU, l.GPU), strings.Compare(k.Kind, l.Kind),
		strings.Compare(k.PID, l.PID), strings.Compare(k.Labels, l.Labels),
	)
}

// Shape describes one profile that is made of a window.
type Shape struct {
	// Name is its profile type's first part in Pyroscope.
	Name    string
	Columns []Column
	// Period is the value of one sample; without PeriodType it is omitted.
	PeriodType, PeriodUnit string
	Period                 int64
	// IsLevel: values of different times must not be added up.
	IsLevel bool
}

// Column is one sample type.
type Column struct {
	Type, Unit string
	Value      profile.Type
}

// Names of profiles. Levels have their own, because a query over a range adds them up,
// which must be a deliberate choice.
const (
	Alloc = "cuda_alloc"
	Inuse = "cuda_inuse"
	Peak  = "cuda_peak"
	// Of PyTorch's pool, whose memory is in the profiles above, too.
	TorchAlloc = "torch_alloc"
	TorchInuse = "torch_inuse"
	TorchPeak  = "torch_peak"
	CPU        = "python_cpu"
	Wall       = "python_wall"
	Calls      = "cuda_calls"
	// Of kernels that the GPU is known to have run.
	Device = "cuda_device"
)

// Levels are the profiles of levels that are wanted.
type Levels struct {
	// Inuse has the memory in use at the end of the window, Peak that of the moment in it
	// at which the process held the most.
	Inuse, Peak bool
}

// Shapes are the profiles of a subject, without levels unless wanted.
func Shapes(subject profile.Subject, period time.Duration, levels Levels) []Shape {
	columns := func(types ...profile.Type) (all []Column) {
		for _, t := range types {
			all = append(all, Column{t.String(), t.Unit(), t})
		}
		return all
	}
	switch subject {
	case profile.CPU:
		return []Shape{{Name: CPU, Columns: columns(profile.Samples, profile.CPUTime), PeriodType: "cpu", PeriodUnit: "nanoseconds", Period: period.Nanoseconds()}}
	case profile.Wall:
		return []Shape{{Name: Wall, Columns: columns(profile.Samples, profile.WallTime), PeriodType: "wall", PeriodUnit: "nanoseconds", Period: period.Nanoseconds()}}
	}
	if subject == profile.Calls {
		return []Shape{{Name: Calls, Columns: columns(profile.Calls.Types()...), PeriodType: "host", PeriodUnit: "nanoseconds", Period: 1},
			{Name: Device, Columns: columns(profile.DeviceTypes()...), PeriodType: "device", PeriodUnit: "nanoseconds", Period: 1}}
	}
	// Every allocation is counted; nothing is scaled up.
	var shapes []Shape
	space := func(name string, isLevel bool, types ...profile.Type) {
		shapes = append(shapes, Shape{Name: name, Columns: columns(types...), PeriodType: "space", PeriodUnit: "bytes", Period: 1, IsLevel: isLevel})
	}
	level := func(isWanted bool, name string, types ...profile.Type) {
		if isWanted {
			space(name, true, types...)
		}
	}
	space(Alloc, false, profile.AllocObjects, profile.AllocSpace)
	level(levels.Inuse, Inuse, profile.InuseObjects, profile.InuseSpace)
	level(levels.Peak, Peak, profile.PeakSpace)
	space(TorchAlloc, false, profile.TensorAllocObjects, profile.TensorAllocSpace)
	level(levels.Inuse, TorchInuse, profile.TensorInuseObjects, profile.TensorInuseSpace)
	level(levels.Peak, TorchPeak, profile.TensorPeakSpace)
	return shapes
}

// Includes reports whether a row is part of the profile.
func (s Shape) Includes(r profile.Row) bool {
	for _, c := range s.Columns {
		if r.Get(c.Value) != 0 {
			return true
		}
	}
	return false
}
