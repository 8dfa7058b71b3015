// SPDX-License-Identifier: Apache-2.0

package taps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
)

// Numbers of the ioctls of /dev/nvidiactl and /dev/nvidiaN, and where the sizes are in
// their parameters. Source: NVIDIA's open kernel modules, nv_escape.h, nvos.h; gVisor's
// pkg/abi/nvgpu has them for each version of the driver.
const (
	magic           = 'F'
	rmAllocMemory   = 0x27
	rmFree          = 0x29
	rmControl       = 0x2a
	rmAlloc         = 0x2b
	rmVidHeap       = 0x4a
	paramsBytes     = 48 // NVOS64, the larger form of RM_ALLOC
	allocBytes      = 80 // NV_MEMORY_ALLOCATION_PARAMS up to its size and alignment
	classAt         = 12
	allocPointerAt  = 16
	allocSizeAt     = 64
	ringBytes       = 1 << 20
	offsetCmd       = 8
	offsetParams    = 16
	offsetAlloc     = offsetParams + paramsBytes
	offsetFailed    = offsetAlloc + allocBytes
	eventBytes      = offsetFailed + 8
	tracepointFD    = 16 // in the context of sys_enter_ioctl, as its format file says
	tracepointCmd   = 24
	tracepointParam = 32
)

// classes of objects that are memory, by nvos.h and its classes' headers.
func class(n uint32) string {
	switch n {
	case 0x40:
		return "NV01_MEMORY_LOCAL_USER"
	case 0x3e:
		return "NV01_MEMORY_SYSTEM"
	case 0x71:
		return "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR"
	case 0x70:
		return "NV01_MEMORY_VIRTUAL"
	case 0x50a0:
		return "NV50_MEMORY_VIRTUAL"
	case 0xf8:
		return "NV_MEMORY_FABRIC"
	case 0x90ce:
		return "NV01_MEMORY_DEVICELESS"
	}
	return fmt.Sprintf("class %#x", n)
}

// Ioctl is one that a process made.
type Ioctl struct {
	Path   string // of the file, as /proc/PID/fd has it when the ioctl is read
	Name   string // NV_ESC_RM_ALLOC …; a number for other ioctls
	Class  string // of NV_ESC_RM_ALLOC
	Bytes  uint64 // of an object that is memory; 0 otherwise
	Failed bool   // its parameters could not be read
}

// Ioctls records the ioctls of a process until Close.
type Ioctls struct {
	pid     int
	ring    *ebpf.Map
	program *ebpf.Program
	link    link.Link
	reader  *ringbuf.Reader
}

// RecordIoctls needs tracefs.
func RecordIoctls(pid int) (*Ioctls, error) {
	t := &Ioctls{pid: pid}
	if err := t.start(); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Ioctls) start() (err error) {
	if t.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "kit_ioctls", Type: ebpf.RingBuf, MaxEntries: ringBytes}); err != nil {
		return fmt.Errorf("make a ring: %w", err)
	}
	if t.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "kit_ioctl", Type: ebpf.TracePoint, License: "GPL", Instructions: ioctlProgram(t.pid, t.ring.FD()),
	}); err != nil {
		return fmt.Errorf("load the program for ioctls: %w", err)
	}
	if t.reader, err = ringbuf.NewReader(t.ring); err != nil {
		return err
	}
	if t.link, err = link.Tracepoint("syscalls", "sys_enter_ioctl", t.program, nil); err != nil {
		return fmt.Errorf("attach to sys_enter_ioctl: %w", err)
	}
	return nil
}

// ioctlProgram copies the number and parameters of each ioctl of a process into the ring:
// for the resource manager the structure itself, and for an allocation the structure that
// it points to.
func ioctlProgram(pid, ring int) asm.Instructions {
	const event = -eventBytes
	p := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(pid), "out"),
		asm.Mov.Imm(asm.R1, 0),
	}
	for at := 0; at < eventBytes; at += 8 {
		p = append(p, asm.StoreMem(asm.R10, int16(event+at), asm.R1, asm.DWord))
	}
	return append(p,
		asm.LoadMem(asm.R1, asm.R6, tracepointFD, asm.DWord),
		asm.StoreMem(asm.R10, event, asm.R1, asm.DWord),
		asm.LoadMem(asm.R7, asm.R6, tracepointCmd, asm.DWord),
		asm.StoreMem(asm.R10, event+offsetCmd, asm.R7, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.RSh.Imm(asm.R1, 8),
		asm.And.Imm(asm.R1, 0xff),
		asm.JNE.Imm(asm.R1, magic, "send"),

		asm.Mov.Reg(asm.R2, asm.R7),
		asm.RSh.Imm(asm.R2, 16),
		asm.And.Imm(asm.R2, 0x3fff),
		asm.JLE.Imm(asm.R2, paramsBytes, "read"),
		asm.Mov.Imm(asm.R2, paramsBytes),
		asm.Mov.Reg(asm.R1, asm.R10).WithSymbol("read"),
		asm.Add.Imm(asm.R1, event+offsetParams),
		asm.LoadMem(asm.R3, asm.R6, tracepointParam, asm.DWord),
		asm.FnProbeReadUser.Call(),
		asm.StoreMem(asm.R10, event+offsetFailed, asm.R0, asm.DWord),

		asm.And.Imm(asm.R7, 0xff),
		asm.JNE.Imm(asm.R7, rmAlloc, "send"),
		asm.LoadMem(asm.R3, asm.R10, event+offsetParams+allocPointerAt, asm.DWord),
		asm.JEq.Imm(asm.R3, 0, "send"),
		asm.Mov.Reg(asm.R1, asm.R10),
		asm.Add.Imm(asm.R1, event+offsetAlloc),
		asm.Mov.Imm(asm.R2, allocBytes),
		asm.FnProbeReadUser.Call(), // beyond a smaller structure, the following bytes are read, too

		asm.LoadMapPtr(asm.R1, ring).WithSymbol("send"),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, event),
		asm.Mov.Imm(asm.R3, eventBytes),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
}

// Read returns the ioctls recorded since the last Read. The process waits meanwhile.
func (t *Ioctls) Read() ([]Ioctl, error) {
	var all []Ioctl
	var record ringbuf.Record
	t.reader.SetDeadline(time.Now().Add(50 * time.Millisecond))
	for {
		if err := t.reader.ReadInto(&record); errors.Is(err, os.ErrDeadlineExceeded) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read ioctls: %w", err)
		}
		if len(record.RawSample) >= eventBytes {
			all = append(all, t.decode(record.RawSample))
		}
	}
}

func (t *Ioctls) decode(b []byte) Ioctl {
	fd, cmd := binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[offsetCmd:])
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, fd)) // it may be closed by now
	i := Ioctl{Path: path, Failed: binary.NativeEndian.Uint64(b[offsetFailed:]) != 0}
	if cmd>>8&0xff != magic {
		i.Name = fmt.Sprintf("%#x", cmd)
		return i
	}
	switch nr := cmd & 0xff; nr {
	case rmAlloc:
		n := binary.NativeEndian.Uint32(b[offsetParams+classAt:])
		i.Name, i.Class = "NV_ESC_RM_ALLOC", class(n)
		if n == 0x40 || n == 0x3e || n == 0x70 || n == 0x50a0 {
			i.Bytes = binary.NativeEndian.Uint64(b[offsetAlloc+allocSizeAt:])
		}
	case rmFree:
		i.Name = "NV_ESC_RM_FREE"
	case rmControl:
		i.Name = "NV_ESC_RM_CONTROL"
	case rmAllocMemory:
		i.Name = "NV_ESC_RM_ALLOC_MEMORY"
	case rmVidHeap:
		i.Name = "NV_ESC_RM_VID_HEAP_CONTROL"
	default:
		i.Name = fmt.Sprintf("F %#x", nr)
	}
	return i
}

// Close ends the recording.
func (t *Ioctls) Close() {
	if t.link != nil {
		t.link.Close()
	}
	if t.reader != nil {
		t.reader.Close()
	}
	if t.program != nil {
		t.program.Close()
	}
	if t.ring != nil {
		t.ring.Close()
	}
}
