// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// rings wakes the readers of a gadget's ring buffers, and knows what they have not
// read yet. Inspektor Gadget reads them.
type rings struct {
	waker *ebpf.Program // nil: events wake the readers themselves
	all   []ring
}

// ring is the two positions of a BPF ring buffer, in bytes, as the kernel maps them: a
// page with the consumer's, then one with the producer's (kernel/bpf/ringbuf.c).
type ring struct {
	consumer, producer []byte
}

func openRings(gc ig.Context, names []string) (*rings, error) {
	r := &rings{}
	for _, name := range names {
		m, err := ig.Map(gc, name)
		if errors.Is(err, ig.ErrAbsent) {
			continue // the variant for old kernels has no host activity
		}
		if err == nil {
			err = r.add(m)
		}
		if err != nil {
			r.close()
			return nil, fmt.Errorf("ring buffer %s: %w", name, err)
		}
	}
	var err error
	if r.waker, err = ig.Program(gc, "ring_wake_program"); err != nil && !errors.Is(err, ig.ErrAbsent) {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rings) add(m *ebpf.Map) error {
	page := os.Getpagesize()
	consumer, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map it: %w", err)
	}
	producer, err := unix.Mmap(m.FD(), int64(page), page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return errors.Join(fmt.Errorf("map it: %w", err), unix.Munmap(consumer))
	}
	r.all = append(r.all, ring{consumer, producer})
	return nil
}

func position(page []byte) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&page[0])))
}

// wake has what is in the rings read.
func (r *rings) wake() {
	if r.waker == nil {
		return
	}
	// It can only fail for want of memory; then it is the next one's turn.
	_, _ = r.waker.Run(&ebpf.RunOptions{})
}

// drain waits until what is in the rings now has been read, and returns how many bytes
// of it have not been when the time was over.
func (r *rings) drain(limit time.Duration) (left uint64) {
	until := make([]uint64, len(r.all))
	for n := range r.all {
		until[n] = position(r.all[n].producer)
	}
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		left = 0
		for n := range r.all {
			if at := position(r.all[n].consumer); at < until[n] {
				left += until[n] - at
			}
		}
		if left == 0 || time.Since(begun) > limit {
			return left
		}
		r.wake()
	}
}

// close may be called twice, and of none.
func (r *rings) close() {
	if r == nil {
		return
	}
	if r.waker != nil {
		r.waker.Close()
		r.waker = nil
	}
	for _, one := range r.all {
		_ = unix.Munmap(one.consumer)
		_ = unix.Munmap(one.producer)
	}
	r.all = nil
}
