// SPDX-License-Identifier: Apache-2.0

// Package taps counts calls of a library's functions in one process, and records the
// ioctls that it makes. Both are programs of a few instructions, so they are assembled
// here, without a compiler.
package taps

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Calls counts calls until Close.
type Calls struct {
	entries []Entry
	counts  *ebpf.Map // index of entry → calls
	program *ebpf.Program
	link    link.Link
}

// CountCalls counts the calls of these functions of a file, of one process. It needs
// uprobe_multi (Linux 6.6).
func CountCalls(path string, pid int, entries []Entry) (*Calls, error) {
	c := &Calls{entries: entries}
	if err := c.start(path, pid); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Calls) start(path string, pid int) (err error) {
	if c.counts, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "kit_calls", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: uint32(max(1, len(c.entries))),
	}); err != nil {
		return fmt.Errorf("make a table of counts: %w", err)
	}
	if c.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "kit_count", Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "GPL",
		Instructions: asm.Instructions{
			asm.FnGetAttachCookie.Call(),
			asm.StoreMem(asm.R10, -4, asm.R0, asm.Word),
			asm.LoadMapPtr(asm.R1, c.counts.FD()),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
			asm.Return(),
		},
	}); err != nil {
		return fmt.Errorf("load the counting program: %w", err)
	}
	file, err := link.OpenExecutable(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	o := &link.UprobeMultiOptions{PID: uint32(pid)}
	for i, e := range c.entries {
		o.Addresses = append(o.Addresses, e.FileOffset+e.Place)
		o.Cookies = append(o.Cookies, uint64(i))
	}
	if c.link, err = file.UprobeMulti(nil, c.program, o); err != nil {
		return fmt.Errorf("probe %d functions of %s: %w", len(c.entries), path, err)
	}
	return nil
}

// Read returns how often each function was called since CountCalls; without those that
// were not.
func (c *Calls) Read() (map[string]uint64, error) {
	counts := map[string]uint64{}
	for i, e := range c.entries {
		var n uint64
		if err := c.counts.Lookup(uint32(i), &n); err != nil {
			return nil, fmt.Errorf("read counts: %w", err)
		}
		if n > 0 {
			counts[e.Name] = n
		}
	}
	return counts, nil
}

// Close removes the probes.
func (c *Calls) Close() {
	if c.link != nil {
		c.link.Close()
	}
	if c.program != nil {
		c.program.Close()
	}
	if c.counts != nil {
		c.counts.Close()
	}
}
