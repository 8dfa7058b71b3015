// SPDX-License-Identifier: Apache-2.0

// Package machine checks, before a gadget runs, what this machine must provide,
// and says in one line what is missing and what to do about it.
package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/pflag"
)

// btfPath is where a kernel built with CONFIG_DEBUG_INFO_BTF describes itself.
const btfPath = "/sys/kernel/btf/vmlinux"

// Requirement is something that the user has to change before a gadget can run.
// Its text stands alone: what is needed, and how to get it.
type Requirement struct {
	Need string
}

func (r *Requirement) Error() string { return r.Need }

// Machine is what Check looks at; the zero value is not useful, see This.
type Machine struct {
	EffectiveUser int
	BTF           string // path of the kernel's BTF
}

// This describes the machine that we run on.
func This() Machine {
	return Machine{EffectiveUser: os.Geteuid(), BTF: btfPath}
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
	return nil
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
