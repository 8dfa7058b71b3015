// SPDX-License-Identifier: Apache-2.0

// Command loads reports whether the kernel of this machine loads eBPF programs, and ends
// with status 1 and the reason if not. It loads one that does nothing, in a child process:
// in a kernel whose JIT is locked up (internal/ig/stock.go) that never returns, and its
// process cannot be killed or waited for.
//
//	sudo -E build/loads || echo "run the tests in a virtual machine"
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
)

const (
	childArgument = "child"
	loaded        = "loaded"

	// limit is how long the parent waits. Loading takes a millisecond, and seconds on a machine with
	// hundreds of programs being freed.
	limit = 30 * time.Second
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == childArgument {
		fmt.Println(load())
		return
	}
	if err := ask(limit); err != nil {
		fmt.Fprintln(os.Stderr, "loads:", err)
		os.Exit(1)
	}
}

// load is "loaded", or why the kernel refused.
func load() string {
	if err := rlimit.RemoveMemlock(); err != nil {
		return "raise the limit of locked memory: " + err.Error()
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SocketFilter,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "GPL",
	})
	if err != nil {
		return "load a program: " + err.Error()
	}
	p.Close()
	return loaded
}

// ask starts the child and waits for its answer, and not for its end.
func ask(limit time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	child := exec.Command(self, childArgument)
	out, err := child.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the child: %w", err)
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the child: %w", err)
	}
	answer := make(chan error, 1)
	go func() { answer <- read(out) }()
	select {
	case err := <-answer:
		return err
	case <-time.After(limit):
		return fmt.Errorf("the kernel has not loaded an empty program in %v: its eBPF is locked up, and the machine needs a restart", limit)
	}
}

func read(from io.Reader) error {
	line, err := bufio.NewReader(from).ReadString('\n')
	switch line = strings.TrimSpace(line); {
	case line == loaded:
		return nil
	case line != "":
		return errors.New(line)
	default:
		return fmt.Errorf("the child gave no answer: %w", err)
	}
}
