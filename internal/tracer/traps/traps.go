// SPDX-License-Identifier: Apache-2.0

// Package traps measures what a probe costs whatever its program does: the trap into the
// kernel and back, at the entry and at the return of a function.
package traps

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Cost of one probe, without its program.
type Cost struct{ Entry, Return time.Duration }

const (
	calls = 500 // of a loop: about 0.5 ms
	loops = 7   // the fastest one counts: no other thread had the processor
)

// Implemented in assembly, which no Go runtime code looks into while it runs: a probe at a
// return puts an address of the kernel's onto the stack.
func probed()
func call(times int64)
func address() uintptr

// Measure probes a function of this process with empty programs. It takes some
// milliseconds, and needs what ig-gpu needs.
func Measure() (Cost, error) {
	offset, err := fileOffset(uint64(address()))
	if err != nil {
		return Cost{}, err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return Cost{}, fmt.Errorf("load an empty program: %w", err)
	}
	defer program.Close()
	self, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return Cost{}, err
	}
	at := &link.UprobeOptions{Address: offset, PID: os.Getpid()}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	alone := fastest()
	entry, err := self.Uprobe("", program, at)
	if err != nil {
		return Cost{}, fmt.Errorf("probe a function of our own: %w", err)
	}
	one := fastest()
	exit, err := self.Uretprobe("", program, at)
	if err != nil {
		entry.Close()
		return Cost{}, fmt.Errorf("probe the return of a function of our own: %w", err)
	}
	both := fastest()
	exit.Close()
	entry.Close()
	return Cost{Entry: max(one-alone, 0), Return: max(both-one, 0)}, nil
}

// fastest is the time of one call.
func fastest() time.Duration {
	best := time.Duration(1<<63 - 1)
	for range loops {
		begin := time.Now()
		call(calls)
		best = min(best, time.Since(begin))
	}
	return best / calls
}

// fileOffset is where code of this process is in its file.
func fileOffset(at uint64) (uint64, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to, offset uint64
		var perms string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x", &from, &to, &perms, &offset); err == nil && at >= from && at < to {
			return at - from + offset, nil
		}
	}
	return 0, errors.New("find a function of our own: it is not mapped")
}
