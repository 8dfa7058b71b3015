// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// SysFS is where the kernel says what it counts.
const SysFS = "/sys"

// maxSysFile bounds what is read of one file of it.
const maxSysFile = 64 << 10

// AMD reads AMD's GPUs from sysfs, without a library: the memory of each process as the kernel's
// driver counts it (class/kfd/kfd/proc/PID/vram_GPUID, since Linux 5.8), and of each GPU its size,
// use and load (class/drm/renderDN/device). A process of which KFD counts no memory has what its
// open files of the GPU have (fdinfo), which is that of graphics. It is safe for concurrent use.
type AMD struct {
	kfd, drm string
	clients  *clients
}

// OpenAMD opens them below a sysfs, with the processes of a /proc. The error is ErrNoAMD where there
// are none.
func OpenAMD(sysfs, proc string) (Library, error) {
	a := &AMD{filepath.Join(sysfs, "class/kfd/kfd"), filepath.Join(sysfs, "class/drm"), newClients(proc)}
	if len(a.devices()) == 0 {
		return nil, ErrNoAMD
	}
	return a, nil
}

// ErrNoAMD means that this machine has no GPU of AMD's, or not its driver for computing (KFD).
var ErrNoAMD = errors.New("no AMD driver here")

// amdGPU is one of AMD's.
type amdGPU struct {
	Device
	dir  string // of its DRM device
	pdev string // its address on the bus
}

// devices returns the GPUs by KFD's id. A node of KFD's topology that is a CPU has the id 0.
func (a *AMD) devices() map[string]amdGPU {
	nodes, _ := filepath.Glob(filepath.Join(a.kfd, "topology/nodes/*"))
	found := map[string]amdGPU{}
	var order []string
	for n := range len(nodes) { // by number, not by name
		dir := filepath.Join(a.kfd, "topology/nodes", strconv.Itoa(n))
		id := line(filepath.Join(dir, "gpu_id"))
		if id == "" || id == "0" {
			continue
		}
		properties := map[string]string{}
		for text := range strings.Lines(read(filepath.Join(dir, "properties"))) {
			key, value, _ := strings.Cut(strings.TrimSpace(text), " ")
			properties[key] = value
		}
		gpu := amdGPU{dir: filepath.Join(a.drm, "renderD"+properties["drm_render_minor"], "device")}
		for text := range strings.Lines(read(filepath.Join(gpu.dir, "uevent"))) {
			if address, ok := strings.CutPrefix(text, "PCI_SLOT_NAME="); ok {
				gpu.pdev = strings.TrimSpace(address)
			}
		}
		gpu.Vendor, gpu.Index = "AMD", len(order)
		gpu.UUID = line(filepath.Join(gpu.dir, "unique_id"))
		if gpu.UUID == "" {
			gpu.UUID = "kfd-" + id // cards for desktops have none
		}
		gpu.Name = line(filepath.Join(gpu.dir, "product_name"))
		found[id] = gpu
		order = append(order, id)
	}
	return found
}

// Read implements Library.
func (a *AMD) Read() Reading {
	devices := a.devices()
	compute, graphics := a.processes(devices)
	r := Reading{Processes: slices.Concat(compute, graphics)}
	for _, d := range devices {
		add := func(metric string, value float64, labels ...attribute.KeyValue) {
			r.Points = append(r.Points, Point{metric, d.Device, value, labels})
		}
		if busy, ok := number(filepath.Join(d.dir, "gpu_busy_percent")); ok {
			add("hw.gpu.utilization", float64(busy)/100, attribute.String("hw.gpu.task", "general"))
		}
		total, ok := number(filepath.Join(d.dir, "mem_info_vram_total"))
		if used, known := number(filepath.Join(d.dir, "mem_info_vram_used")); ok && known && total > 0 {
			add("hw.gpu.memory.limit", float64(total))
			add("hw.gpu.memory.usage", float64(used))
			add("hw.gpu.memory.utilization", float64(used)/float64(total))
		}
		add("gpu.processes", float64(on(compute, d.Device)), attribute.String("type", "compute"))
		add("gpu.processes", float64(on(graphics, d.Device)), attribute.String("type", "graphics"))
	}
	return r
}

// on counts the processes on a device.
func on(all []ProcessMemory, d Device) (n int) {
	for _, p := range all {
		if p.Device == d {
			n++
		}
	}
	return n
}

// Processes implements Library.
func (a *AMD) Processes() []ProcessMemory { return slices.Concat(a.processes(a.devices())) }

// processes returns those that compute, which KFD counts, and the others. A file of 0 bytes is no use of a GPU: KFD
// makes one for each GPU that the process may use (kfd_procfs_add_sysfs_files).
func (a *AMD) processes(devices map[string]amdGPU) (compute, graphics []ProcessMemory) {
	files, _ := filepath.Glob(filepath.Join(a.kfd, "proc/*/vram_*"))
	for _, file := range files {
		pid, err := strconv.ParseUint(filepath.Base(filepath.Dir(file)), 10, 31)
		id := strings.TrimPrefix(filepath.Base(file), "vram_")
		device, ok := devices[id]
		bytes, _ := number(file) // none, where the process has ended
		if err != nil || !ok || bytes == 0 {
			continue
		}
		compute = append(compute, ProcessMemory{device.Device, uint32(pid), bytes})
	}
	return compute, a.others(devices, compute)
}

// others returns the processes that KFD does not count. One that computes opens all GPUs: what it has on those where KFD
// counts none is mostly page tables.
func (a *AMD) others(devices map[string]amdGPU, counted []ProcessMemory) (all []ProcessMemory) {
	computes := map[uint32]bool{}
	for _, p := range counted {
		computes[p.PID] = true
	}
	sums := a.clients.memory()
	for _, d := range devices {
		for pid, bytes := range sums[d.pdev] {
			if bytes > 0 && !computes[pid] {
				all = append(all, ProcessMemory{d.Device, pid, bytes})
			}
		}
	}
	return all
}

// Close implements Library.
func (*AMD) Close() {}

func read(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSysFile))
	if err != nil {
		return ""
	}
	return string(text)
}

func line(path string) string { return strings.TrimSpace(read(path)) }

func number(path string) (int64, bool) {
	n, err := strconv.ParseInt(line(path), 10, 64)
	return n, err == nil && n >= 0
}

// union is the GPUs of several vendors on one machine.
type union []Library

// OpenAll opens NVIDIA's GPUs as OpenAny does, and AMD's as OpenAMD does: either, or both. If there are
// none, the error names both. With the name of a vendor instead of the path it opens that one's alone.
func OpenAll(path, pins, sysfs, proc string) (Library, error) {
	switch path {
	case "nvidia":
		return OpenAny("", pins)
	case "amd":
		return OpenAMD(sysfs, proc)
	}
	var all union
	nvidia, err := OpenAny(path, pins)
	if err == nil {
		all = append(all, nvidia)
	}
	amd, amdErr := OpenAMD(sysfs, proc)
	if amdErr == nil {
		all = append(all, amd)
	}
	switch len(all) {
	case 0:
		return nil, fmt.Errorf("%w, and %w", err, amdErr)
	case 1:
		return all[0], nil
	}
	return all, nil
}

// Read implements Library.
func (u union) Read() (r Reading) {
	for _, library := range u {
		one := library.Read()
		r.Points, r.Processes = append(r.Points, one.Points...), append(r.Processes, one.Processes...)
	}
	return r
}

// Listen implements listener.
func (u union) Listen() {
	for _, library := range u {
		listen(library)
	}
}

// Processes implements Library.
func (u union) Processes() (all []ProcessMemory) {
	for _, library := range u {
		all = append(all, library.Processes()...)
	}
	return all
}

// Close implements Library.
func (u union) Close() {
	for _, library := range u {
		library.Close()
	}
}
