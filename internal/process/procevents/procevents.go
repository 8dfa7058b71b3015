// SPDX-License-Identifier: Apache-2.0

// Package procevents reports what processes do: exec, fork, exit, and mapping code. It
// reads the records that a perf software event of the kind "dummy" writes
// (perf_event_open(2), Linux 3.16): a stable interface, without eBPF, tracefs or kprobes.
// Records can be lost under load; losses are reported, so that a reader can scan /proc
// instead.
package procevents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/cpus"
)

// Kind is the kind of an event.
type Kind uint8

const (
	// Exec means that the process runs another program.
	Exec Kind = iota
	// Fork means that PID is the new process, Parent the one it was copied from.
	Fork
	// Exit means that the first thread ended.
	Exit
	// Map means that the process mapped Path with execute permission. The mapping is in
	// its maps file by then.
	Map
	// Lost means that Count records were lost.
	Lost
)

// Event is one record.
type Event struct {
	Kind   Kind
	PID    uint32
	Parent uint32
	Path   string
	Count  uint64
	// Time is CLOCK_MONOTONIC in nanoseconds.
	Time uint64
}

// ringBytes is the data of one CPU's ring: a power of two of pages, which have up to 64 KiB. A record
// of a mapping is about 150 bytes, so that 64 KiB hold the mappings of ten
// started processes.
const ringBytes = 64 << 10

// gather is the wait after the first record. A starting process writes about eight within
// a millisecond, and each wakeup costs 10 µs.
const gather = time.Millisecond

// Reader reads the events of the whole machine.
type Reader struct {
	rings  []*ring
	online []int // CPUs at the start
	epoll  int
	// ready is an epoll instance with the rings, which Go's poller waits for. A
	// thread blocked in poll(2) would hold one of Go's Ps for a while at each event,
	// and sysmon would never idle: four times the cost of reading the events.
	ready *os.File
}

// Open starts recording. It needs CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8).
// The caller calls Close.
func Open() (*Reader, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open epoll: %w", err)
	}
	if err := unix.SetNonblock(epoll, true); err != nil { // for Go's poller
		unix.Close(epoll)
		return nil, fmt.Errorf("open epoll: %w", err)
	}
	r := &Reader{epoll: epoll, ready: os.NewFile(uintptr(epoll), "perf events")}
	if r.online, err = cpus.Online(); err == nil {
		err = r.record(r.online)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// record starts recording on CPUs, also on those that were offline in between: the events of a CPU end
// with it.
func (r *Reader) record(online []int) error {
	for _, cpu := range online {
		fresh, err := openRing(cpu)
		if errors.Is(err, unix.ENODEV) {
			continue // went offline
		}
		if err != nil {
			return fmt.Errorf("open perf event on CPU %d: %w", cpu, err)
		}
		r.rings = slices.DeleteFunc(r.rings, func(old *ring) bool {
			if old.cpu == cpu {
				old.close()
			}
			return old.cpu == cpu
		})
		r.rings = append(r.rings, fresh)
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
		if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fresh.fd, &event); err != nil {
			return fmt.Errorf("wait for perf events on CPU %d: %w", cpu, err)
		}
	}
	return nil
}

// Close releases everything. Run must have returned.
func (r *Reader) Close() {
	for _, ring := range r.rings {
		ring.close()
	}
	r.ready.Close()
}

// Run calls fn with batches of events in the order of time until ctx is done, once.
// Mappings of a path for which keep is false are skipped. Neither may retain its argument
// after it returns, except the strings of events.
func (r *Reader) Run(ctx context.Context, keep func(pid uint32, path []byte) bool, fn func([]Event)) error {
	ready, err := r.ready.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for perf events: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		_ = r.ready.SetReadDeadline(time.Unix(1, 0)) // long ago: now
	})
	defer stop()
	came := make(chan []int, 1)
	go cpus.Watch(ctx, r.online, func(online []int) {
		select {
		case came <- online:
			_ = r.ready.SetReadDeadline(time.Unix(1, 0))
		case <-ctx.Done():
		}
	})
	var batch []Event
	for {
		// The content of the rings decides, not epoll: the kernel notifies once per
		// record, and Go's poller has consumed that.
		err := ready.Read(func(uintptr) bool { return slices.ContainsFunc(r.rings, (*ring).filled) })
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// Before the test of ctx, which sets it when it is done.
			err = r.ready.SetReadDeadline(time.Time{})
		}
		batch = batch[:0]
		select {
		case online := <-came:
			err = errors.Join(err, r.record(online))
			batch = append(batch, Event{Kind: Lost, Count: 1}) // all since the CPU is online
		default:
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for perf events: %w", err)
		}
		time.Sleep(gather)
		for _, ring := range r.rings {
			batch = ring.read(batch, keep)
		}
		if len(batch) > 0 {
			slices.SortStableFunc(batch, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
			fn(batch)
		}
	}
}

type ring struct {
	cpu  int
	fd   int
	mem  []byte
	page *unix.PerfEventMmapPage
	data []byte
	buf  []byte // a record that wraps around the end
}

func openRing(cpu int) (*ring, error) {
	attr := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample_type: unix.PERF_SAMPLE_TIME,
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec |
			unix.PerfBitTask | unix.PerfBitSampleIDAll | unix.PerfBitWatermark | unix.PerfBitUseClockID,
		Clockid: unix.CLOCK_MONOTONIC,
		Wakeup:  1, // byte: at once, so that probes are in place before the library is used
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	size := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, size+ringBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("map ring: %w", err)
	}
	return &ring{
		cpu: cpu, fd: fd, mem: mem,
		page: (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0])),
		data: mem[size:],
	}, nil
}

func (r *ring) close() {
	_ = unix.Munmap(r.mem)
	unix.Close(r.fd)
}

// filled reports whether there are records to read.
func (r *ring) filled() bool {
	return atomic.LoadUint64(&r.page.Data_head) != r.page.Data_tail
}

// read appends the available records.
func (r *ring) read(out []Event, keep func(uint32, []byte) bool) []Event {
	head, tail := atomic.LoadUint64(&r.page.Data_head), r.page.Data_tail
	for head-tail >= 8 {
		h := r.bytes(tail, 8)
		size := uint64(binary.NativeEndian.Uint16(h[6:]))
		if size < 8 || size > head-tail {
			tail = head // cannot happen; the rest of the ring is unreadable
			out = append(out, Event{Kind: Lost, Count: 1})
			break
		}
		if e, ok := parse(r.bytes(tail, size), keep); ok {
			out = append(out, e)
		}
		tail += size
	}
	atomic.StoreUint64(&r.page.Data_tail, tail)
	return out
}

func (r *ring) bytes(at, n uint64) []byte {
	at &= uint64(len(r.data)) - 1
	if at+n <= uint64(len(r.data)) {
		return r.data[at : at+n]
	}
	r.buf = append(r.buf[:0], r.data[at:]...)
	r.buf = append(r.buf, r.data[:n-uint64(len(r.buf))]...)
	return r.buf
}

const commExec = 1 << 13 // PERF_RECORD_MISC_COMM_EXEC

// parse reads a record; the layouts are in perf_event_open(2). With
// sample_id_all every record ends with its time.
func parse(b []byte, keep func(uint32, []byte) bool) (Event, bool) {
	ne := binary.NativeEndian
	typ, misc := ne.Uint32(b), ne.Uint16(b[4:])
	if len(b) < 24 {
		return Event{}, false
	}
	e := Event{PID: ne.Uint32(b[8:]), Time: ne.Uint64(b[len(b)-8:])}
	switch typ {
	case unix.PERF_RECORD_COMM:
		e.Kind = Exec
		return e, misc&commExec != 0
	case unix.PERF_RECORD_FORK:
		e.Kind, e.Parent = Fork, ne.Uint32(b[12:])
		return e, e.PID != e.Parent // else a thread
	case unix.PERF_RECORD_EXIT:
		e.Kind = Exit
		return e, ne.Uint32(b[16:]) == e.PID
	case unix.PERF_RECORD_MMAP2:
		const name = 72
		if len(b) < name+8 {
			return e, false
		}
		path, _, _ := bytes.Cut(b[name:len(b)-8], []byte{0})
		if !keep(e.PID, path) {
			return e, false
		}
		e.Kind, e.Path = Map, string(path)
		return e, true
	case unix.PERF_RECORD_LOST:
		e.Kind, e.PID, e.Count = Lost, 0, ne.Uint64(b[16:])
		return e, true
	}
	return e, false
}
