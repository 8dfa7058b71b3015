// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFirstMissingRequirementIsNamed(t *testing.T) {
	btf := filepath.Join(t.TempDir(), "vmlinux")
	require.NoError(t, os.WriteFile(btf, nil, 0o644))
	modes := func(text string) string {
		file := filepath.Join(t.TempDir(), "lockdown")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return file
	}
	can := func() error { return nil }
	refused := func() error { return fmt.Errorf("load program: %w", unix.EPERM) }
	cannot := func() error { return fmt.Errorf("load program: %w", unix.EINVAL) }
	for _, c := range []struct {
		name    string
		machine Machine
		needs   string // empty: nothing is missing
	}{
		{"fit", Machine{BTF: btf, LoadSleepable: can}, ""},
		{"user", Machine{EffectiveUser: 1000, BTF: btf}, "ig-gpu needs root"},
		{"no BTF", Machine{BTF: btf + ".absent"}, "ig-gpu needs a kernel with BTF"},
		{"old", Machine{BTF: btf, Release: "5.10.0", LoadSleepable: cannot}, ""},
		{"locked up", Machine{BTF: btf, LoadSleepable: func() error { return ErrLockedUp }}, "the kernel has not loaded an empty eBPF program in 30s: its eBPF is locked up"},
		{"integrity", Machine{BTF: btf, Lockdown: modes("none [integrity] confidentiality\n"), LoadSleepable: can}, ""},
		{"confidentiality", Machine{BTF: btf, Lockdown: modes("none integrity [confidentiality]\n"), LoadSleepable: can}, "ig-gpu reads memory in eBPF programs, which this kernel's lockdown forbids"},
		{"no right", Machine{BTF: btf, LoadSleepable: refused}, "ig-gpu may not load eBPF programs: it lacks CAP_SYS_ADMIN"},
		{"seccomp", Machine{Administers: true, BTF: btf, LoadSleepable: refused}, "ig-gpu may not load eBPF programs although it has CAP_SYS_ADMIN: a seccomp profile"},
		{"user without BTF", Machine{EffectiveUser: 1000, BTF: btf + ".absent"}, "ig-gpu needs root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.machine.Check()
			if c.needs == "" {
				require.NoError(t, err)
				return
			}
			var requirement *Requirement
			require.ErrorAs(t, err, &requirement)
			require.True(t, strings.HasPrefix(err.Error(), c.needs), err.Error())
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestSleepIsAskedOfTheKernel(t *testing.T) {
	old := Machine{Release: "5.10.0", LoadSleepable: func() error { return fmt.Errorf("load program: %w", unix.EINVAL) }}
	require.True(t, old.CannotSleep())
	require.True(t, strings.HasPrefix(old.NeedsSleep("py_stack").Error(), "py_stack needs Linux 6.1 or newer, this is 5.10.0: "))
	require.False(t, Machine{LoadSleepable: func() error { return unix.EPERM }}.CannotSleep(), "locked down")
	require.False(t, Machine{LoadSleepable: func() error { return nil }}.CannotSleep())
}

func TestAKernelThatDoesNotAnswerIsGivenUp(t *testing.T) {
	never := make(chan error)
	require.ErrorIs(t, within(time.Millisecond, func() error { return <-never }), ErrLockedUp)
	require.ErrorIs(t, within(time.Minute, func() error { return unix.EPERM }), unix.EPERM)
}

func TestMountByDefaultLeavesTheChoice(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	mount := flags.Bool("auto-mount-filesystems", false, "")
	require.NoError(t, MountByDefault(flags))
	require.True(t, *mount)
	require.NoError(t, flags.Parse([]string{"--auto-mount-filesystems=false"}))
	require.False(t, *mount)
}

func TestMountByDefaultNoticesALostFlag(t *testing.T) {
	require.Error(t, MountByDefault(pflag.NewFlagSet("", pflag.ContinueOnError)))
}
