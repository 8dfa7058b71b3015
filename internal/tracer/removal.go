// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// quickRemoval makes the breakpoints of a window go as soon as its links are closed. The
// kernel changes breakpoints under a lock that is cheap for forks and dear for us: the
// first to take it waits for an RCU grace period, some 5 to 20 ms, in which the traced
// threads go on trapping for nothing. Whoever takes it within a grace period of the last
// one does not wait (dup_mmap_sem of kernel/events/uprobes.c; kernel/rcu/sync.c). So while a
// window is open, a file that no process maps is probed every few milliseconds.
type quickRemoval struct {
	file *os.File
	ex   *link.Executable
}

const (
	// keepWarm is well below a grace period.
	keepWarm = 3 * time.Millisecond
	// decoyAt is what is probed: zeros, which nobody executes.
	decoyAt, decoySize = 1024, 4096
)

func newQuickRemoval() (*quickRemoval, error) {
	fd, err := unix.MemfdCreate("ig-gpu-decoy", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file to probe: %w", err)
	}
	f := os.NewFile(uintptr(fd), "decoy")
	header := elf.Header64{
		Ident:   [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:    uint16(elf.ET_DYN),
		Version: uint32(elf.EV_CURRENT), Ehsize: 64,
	}
	var b bytes.Buffer
	err = binary.Write(&b, binary.LittleEndian, header)
	if err == nil {
		_, err = f.Write(append(b.Bytes(), make([]byte, decoySize-b.Len())...))
	}
	var ex *link.Executable
	if err == nil {
		ex, err = link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", fd))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("make a file to probe: %w", err)
	}
	return &quickRemoval{f, ex}, nil
}

// keep holds until the end that it returns is called. Without it, or where it fails, removal
// takes longer, and that is all.
func (q *quickRemoval) keep(t *Tracer) (end func()) {
	if q == nil {
		return func() {}
	}
	done := make(chan struct{})
	t.done.Go(func() {
		for tick := time.NewTicker(keepWarm); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
			l, err := q.ex.UprobeMulti(nil, t.cfg.Programs.EnterMulti, &link.UprobeMultiOptions{Addresses: []uint64{decoyAt}, Cookies: []uint64{0}})
			if err != nil {
				return
			}
			t.done.Go(func() { l.Close() })
		}
	})
	return func() { close(done) }
}

func (q *quickRemoval) close() {
	if q != nil {
		q.file.Close()
	}
}
