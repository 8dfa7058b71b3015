// SPDX-License-Identifier: Apache-2.0

// Package machine checks, before a gadget runs, what this machine must provide,
// and says in one line what is missing and what to do about it.
package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/capabilities"
)

// btfPath is where a kernel built with CONFIG_DEBUG_INFO_BTF describes itself.
const btfPath = "/sys/kernel/btf/vmlinux"

// lockdownPath has the mode of kernel_lockdown(7) in brackets.
const lockdownPath = "/sys/kernel/security/lockdown"

// Requirement is something that the user has to change before a gadget can run.
// Its text stands alone: what is needed, and how to get it.
type Requirement struct {
	Need string
}

func (r *Requirement) Error() string { return r.Need }

// Machine has the facts that Check tests; the zero value is not useful, see This.
type Machine struct {
	EffectiveUser int
	Administers   bool   // has CAP_SYS_ADMIN
	BTF           string // path of the kernel's BTF
	Lockdown      string // path of the kernel's lockdown mode; the file may be missing
	Release       string // of the kernel, as uname -r prints it
	// LoadSleepable loads a uprobe program that may sleep. Linux can since 6.0,
	// and 6.1 is the oldest that the gadgets are tested on. A kernel is tested for
	// what it can, not for its number: distributions port eBPF back.
	LoadSleepable func() error
}

// This describes the machine that we run on.
func This() Machine {
	m := Machine{EffectiveUser: os.Geteuid(), Administers: capabilities.Has(cap.SYS_ADMIN), BTF: btfPath, Lockdown: lockdownPath, LoadSleepable: loadSleepable}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Release = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

// ErrLockedUp means that the kernel does not finish loading a program. Linux 6.9 and later
// can lock up when many programs are freed at once (internal/ig/stock.go). From then on
// each process that loads one hangs, and cannot be killed.
var ErrLockedUp = errors.New("the kernel has not loaded an empty eBPF program in " + loadLimit.String() +
	": its eBPF is locked up, and only a restart of the machine helps")

// loadLimit is how long an empty program may take: a millisecond, or seconds where the
// kernel is freeing hundreds of others.
const loadLimit = 30 * time.Second

func loadSleepable() error {
	err := within(loadLimit, loadEmpty)
	// Before Linux 5.11 programs and maps of all processes of a user count against this limit.
	if errors.Is(err, unix.EPERM) && rlimit.RemoveMemlock() == nil {
		err = within(loadLimit, loadEmpty)
	}
	return err
}

func loadEmpty() error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.Kprobe, // uprobe programs are of this type
		Flags:        unix.BPF_F_SLEEPABLE,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "Dual BSD/GPL",
	})
	if err != nil {
		return err
	}
	return program.Close()
}

// within is ErrLockedUp where load takes longer than the limit; it then continues by itself.
func within(limit time.Duration, load func() error) error {
	done := make(chan error, 1)
	go func() { done <- load() }()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		return ErrLockedUp
	}
}

// Check returns a *Requirement for the first thing that is missing.
func (m Machine) Check() error {
	if m.EffectiveUser != 0 {
		return &Requirement{Need: "ig-gpu needs root: eBPF programs may only be loaded by root, run it with sudo"}
	}
	_, err := os.Stat(m.BTF)
	if errors.Is(err, fs.ErrNotExist) {
		return &Requirement{Need: fmt.Sprintf("ig-gpu needs a kernel with BTF: %s is missing, use a kernel built with CONFIG_DEBUG_INFO_BTF=y", m.BTF)}
	}
	if err != nil {
		return fmt.Errorf("look for the kernel's BTF: %w", err)
	}
	if modes, err := os.ReadFile(m.Lockdown); err == nil && strings.Contains(string(modes), "[confidentiality]") {
		return &Requirement{Need: fmt.Sprintf("ig-gpu reads memory in eBPF programs, which this kernel's lockdown forbids (%s: confidentiality): boot with lockdown=integrity", m.Lockdown)}
	}
	switch err := m.LoadSleepable(); {
	case errors.Is(err, ErrLockedUp):
		return &Requirement{Need: err.Error()}
	case errors.Is(err, unix.EPERM) && !m.Administers:
		return &Requirement{Need: "ig-gpu may not load eBPF programs: it lacks CAP_SYS_ADMIN, run it outside of a container or give its container that capability"}
	case errors.Is(err, unix.EPERM):
		return &Requirement{Need: "ig-gpu may not load eBPF programs although it has CAP_SYS_ADMIN: a seccomp profile (of its container) forbids bpf(2), or a security module (before Linux 5.11 it also needs CAP_SYS_RESOURCE)"}
	}
	return nil
}

// CannotSleep says that uprobe programs may not wait for a page of the process
// that is not in memory. Any other reason why one does not load is none: loading
// the gadget will show.
func (m Machine) CannotSleep() bool { return errors.Is(m.LoadSleepable(), unix.EINVAL) }

// NeedsSleep is the reason why a gadget without a variant for old kernels does not run.
func (m Machine) NeedsSleep(gadget string) *Requirement {
	return &Requirement{Need: fmt.Sprintf("%s needs Linux 6.1 or newer, this is %s: its programs must be able to wait for a page of the process that is not in memory", gadget, m.Release)}
}

// MountByDefault turns --auto-mount-filesystems on for flags, which must hold
// Inspektor Gadget's flags about the host already (host.AddFlags). Every common
// distribution mounts bpffs, debugfs and tracefs at boot; containers and small
// images often do not, and Inspektor Gadget then ends the process by itself. A
// tool that is reached for in an emergency should just work.
func MountByDefault(flags *pflag.FlagSet) error {
	const autoMount = "auto-mount-filesystems"
	flag := flags.Lookup(autoMount)
	if flag == nil {
		return fmt.Errorf("no flag --%s to turn on", autoMount)
	}
	flag.DefValue = "true"
	return flag.Value.Set("true")
}
