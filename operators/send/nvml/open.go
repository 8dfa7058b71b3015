// SPDX-License-Identifier: Apache-2.0

//go:build cgo && nvml

package nvml

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.opentelemetry.io/otel/attribute"
)

// library reads through go-nvml.
type library struct {
	lib     nvml.Interface
	devices []device
	missing map[string]bool // symbols missing in the library

	// mu guards the results of listen, and allows one Read at a time.
	mu   sync.Mutex
	xids map[xid]int64

	stop      chan struct{}
	listeners sync.WaitGroup
}

type device struct {
	nvml.Device
	about Device
}

type xid struct {
	device int // in library.devices
	code   uint64
}

// Open loads libnvidia-ml.so.1 from path, or as found by the loader if path is empty.
func Open(path string) (Library, error) {
	var options []nvml.LibraryOption
	if path != "" {
		options = append(options, nvml.WithLibraryPath(path))
	}
	return open(nvml.New(options...))
}

func open(lib nvml.Interface) (*library, error) {
	switch code := lib.Init(); code {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: libnvidia-ml.so.1 is not found", ErrAbsent)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("%w: the kernel module is not loaded", ErrAbsent)
	default:
		return nil, fmt.Errorf("start NVML: %w", code)
	}
	l := &library{lib: lib, missing: map[string]bool{}, xids: map[xid]int64{},
		stop: make(chan struct{})}
	if err := l.list(); err != nil {
		return nil, errors.Join(err, orNil(lib.Shutdown()))
	}
	used := slices.Clone(mpsSymbols)
	for _, m := range table {
		used = append(used, m.symbols...)
	}
	for _, symbol := range used {
		if !has(lib, symbol) {
			l.missing[symbol] = true
		}
	}
	return l, nil
}

// has reports whether a function can be called. Among those that list processes, go-nvml
// calls the newest available version.
func has(lib nvml.Interface, symbol string) bool {
	versions := []string{""}
	if strings.HasSuffix(symbol, "RunningProcesses") {
		versions = append(versions, "_v2", "_v3")
	}
	return slices.ContainsFunc(versions, func(v string) bool { return lib.Extensions().LookupSymbol(symbol+v) == nil })
}

// isMissing reports whether one of the functions is missing in the library.
func (l *library) isMissing(symbols []string) bool {
	return slices.ContainsFunc(symbols, func(symbol string) bool { return l.missing[symbol] })
}

func orNil(code nvml.Return) error {
	if code == nvml.SUCCESS {
		return nil
	}
	return code
}

func (l *library) list() error {
	n, code := l.lib.DeviceGetCount()
	if code != nvml.SUCCESS {
		return fmt.Errorf("count GPUs: %w", code)
	}
	for i := range n {
		handle, code := l.lib.DeviceGetHandleByIndex(i)
		if code != nvml.SUCCESS {
			continue // lost, or not permitted: the others are still useful
		}
		d := device{Device: handle, about: Device{Index: i}}
		d.about.UUID, _ = handle.GetUUID()
		d.about.Name, _ = handle.GetName()
		l.devices = append(l.devices, d)
	}
	return nil
}

// Close implements Library.
func (l *library) Close() {
	close(l.stop)
	l.listeners.Wait()
	l.lib.Shutdown()
}

// Read implements Library. Values that a device does not support are omitted.
func (l *library) Read() Reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	var r Reading
	for i, d := range l.devices {
		for _, m := range table {
			read := readers[m.Name]
			if read == nil || l.isMissing(m.symbols) {
				continue
			}
			for _, v := range read(d.Device) {
				r.Points = append(r.Points, Point{m.Name, d.about, v.value, v.labels})
			}
		}
		if !l.isMissing(processSymbols) {
			l.processes(&r, d)
		}
		if !l.isMissing(migSymbols) {
			l.mig(&r, d)
		}
		l.xidErrors(&r, i)
	}
	return r
}

// Faults returns the points of Read with Xid errors and throttling.
func (l *library) Faults() []Point {
	l.mu.Lock()
	defer l.mu.Unlock()
	var r Reading
	for i, d := range l.devices {
		for _, m := range table {
			if m.Name == "gpu.throttled" && !l.isMissing(m.symbols) {
				for _, v := range readers[m.Name](d.Device) {
					r.Points = append(r.Points, Point{m.Name, d.about, v.value, v.labels})
				}
			}
		}
		l.xidErrors(&r, i)
	}
	return r.Points
}

// xidErrors adds those of a GPU since Listen.
func (l *library) xidErrors(r *Reading, device int) {
	for x, n := range l.xids {
		if x.device == device {
			r.Points = append(r.Points, Point{"gpu.xid_errors", l.devices[device].about, float64(n),
				[]attribute.KeyValue{attribute.String("xid", strconv.FormatUint(x.code, 10))}})
		}
	}
}

// Processes implements Library.
func (l *library) Processes() []ProcessMemory {
	l.mu.Lock()
	defer l.mu.Unlock()
	var r Reading
	if !l.isMissing(processSymbols) {
		for _, d := range l.devices {
			l.processes(&r, d)
		}
	}
	return r.Processes
}

// processList is one of the lists that NVML has of the processes with a context of a type.
type processList struct {
	of   string
	read func() ([]nvml.ProcessInfo, nvml.Return)
}

// processes are those with a compute or a graphics context; one may be in several
// lists, with the same memory, and counts as compute. Clients of the Multi-Process Service (MPS) are
// in a list of their own.
func (l *library) processes(r *Reading, d device) {
	lists := []processList{{"compute", d.GetComputeRunningProcesses}}
	if !l.isMissing(mpsSymbols) {
		lists = append(lists, processList{"compute", d.GetMPSComputeRunningProcesses})
	}
	lists = append(lists, processList{"graphics", d.GetGraphicsRunningProcesses})
	seen := map[uint32]int64{}
	var order []uint32
	var types []string // in the order of lists
	counts := map[string]int{}
	for _, list := range lists {
		all, code := list.read()
		if code != nvml.SUCCESS {
			continue
		}
		if !slices.Contains(types, list.of) {
			types = append(types, list.of)
		}
		before := len(order)
		inList := map[uint32]int64{}
		for _, p := range all {
			if _, ok := seen[p.Pid]; !ok {
				order = append(order, p.Pid)
				seen[p.Pid] = 0
			}
			// NVML_VALUE_NOT_AVAILABLE is all ones.
			if int64(p.UsedGpuMemory) > 0 {
				inList[p.Pid] += int64(p.UsedGpuMemory) // once per MIG instance
			}
		}
		for pid, bytes := range inList {
			seen[pid] = max(seen[pid], bytes)
		}
		counts[list.of] += len(order) - before
	}
	for _, of := range types {
		r.Points = append(r.Points, Point{"gpu.processes", d.about, float64(counts[of]),
			[]attribute.KeyValue{attribute.String("type", of)}})
	}
	for _, pid := range order {
		r.Processes = append(r.Processes, ProcessMemory{d.about, pid, seen[pid]})
	}
}

// mig returns the MIG devices of a GPU, which can change at any time.
func (l *library) mig(r *Reading, d device) {
	if mode, _, code := d.GetMigMode(); code != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return
	}
	most, code := d.GetMaxMigDeviceCount()
	if code != nvml.SUCCESS {
		return
	}
	n := 0
	for i := range most {
		handle, code := d.GetMigDeviceHandleByIndex(i)
		if code != nvml.SUCCESS {
			continue
		}
		n++
		about := Device{Parent: d.about.UUID, Index: d.about.Index}
		about.UUID, _ = handle.GetUUID()
		about.Name, _ = handle.GetName()
		for _, name := range []string{"hw.gpu.memory.limit", "hw.gpu.memory.usage", "hw.gpu.memory.utilization"} {
			for _, v := range readers[name](handle) {
				r.Points = append(r.Points, Point{name, about, v.value, v.labels})
			}
		}
	}
	r.Points = append(r.Points, Point{Metric: "gpu.mig.instances", Device: d.about, Value: float64(n)})
}

// Listen counts Xid errors from now on, for Read and Faults. Close then takes up to half a second.
func (l *library) Listen() { l.listeners.Go(l.listen) }

// listen counts Xid errors until Close.
func (l *library) listen() {
	for _, symbol := range []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents"} {
		if l.lib.Extensions().LookupSymbol(symbol) != nil {
			return
		}
	}
	set, code := l.lib.EventSetCreate()
	if code != nvml.SUCCESS {
		return
	}
	defer set.Free()
	registered := false
	for _, d := range l.devices {
		registered = d.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS || registered
	}
	if !registered {
		return
	}
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		event, code := set.Wait(500) // ms: how long Close may take
		switch code {
		case nvml.SUCCESS:
		case nvml.ERROR_TIMEOUT:
			continue
		default:
			select { // a GPU has fallen off the bus: it answers at once, and repeatedly
			case <-l.stop:
				return
			case <-time.After(time.Second):
			}
			continue
		}
		if event.EventType != nvml.EventTypeXidCriticalError || event.Device == nil {
			continue
		}
		affected := l.affected(event.Device)
		l.mu.Lock()
		for _, device := range affected {
			l.xids[xid{device, event.EventData}]++
		}
		l.mu.Unlock()
	}
}

// affected returns the GPU of an event, by its place in devices. A GPU that has fallen off the bus
// (Xid 79) has no UUID any more. If its handle is unknown too, the event counts for all GPUs
// without a UUID now: it is of one of them.
func (l *library) affected(handle nvml.Device) (all []int) {
	if i := slices.IndexFunc(l.devices, func(d device) bool { return d.Device == handle }); i >= 0 {
		return []int{i}
	}
	uuid, code := handle.GetUUID()
	for i, d := range l.devices {
		if code == nvml.SUCCESS {
			if d.about.UUID == uuid {
				return []int{i}
			}
		} else if _, now := d.GetUUID(); now != nvml.SUCCESS {
			all = append(all, i)
		}
	}
	return all
}
