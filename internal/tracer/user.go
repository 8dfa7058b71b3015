// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
)

// ErrPrivileges means that the program may not do what it has to.
var ErrPrivileges = errors.New("attaching needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE")

// checkPrivileges checks the capabilities that perf uprobes need.
func checkPrivileges() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	has := func(c int) bool { return data[c/32].Effective&(1<<(c%32)) != 0 }
	if !has(unix.CAP_SYS_ADMIN) && !(has(unix.CAP_BPF) && has(unix.CAP_PERFMON)) {
		return ErrPrivileges
	}
	return nil
}

// Check returns what a user has to act on before anything is attached: missing
// privileges, a process that does not exist or cannot be read, ids that are a container's. Start returns the
// same for what has changed since.
func Check(procfs string, pids []uint32) error {
	if err := checkPrivileges(); err != nil {
		return err
	}
	if len(pids) > 0 {
		if err := selection.CheckNamespace(procfs); err != nil {
			return err
		}
	}
	for _, pid := range pids {
		if _, err := procmaps.StartTime(procfs, pid); err != nil {
			return err
		}
		// One that hangs is traced all the same; Start warns of it.
		if _, err := memory.ReadFile(procfs, pid, "maps", 1); err != nil && !errors.Is(err, procmaps.ErrHangs) {
			return fmt.Errorf("read mappings of process %d: %w", pid, err)
		}
	}
	return nil
}

// selectInitial makes the processes of Config.PIDs and their descendants the
// only ones.
func (t *Tracer) selectInitial() error {
	t.hostRoot = t.rootOf(1)
	nested := selection.CheckNamespace(t.cfg.ProcFS)
	if len(t.cfg.PIDs) == 0 {
		if nested != nil {
			t.cfg.Warn(nested.Error() + selection.NestedRows)
		}
		return nil
	}
	if nested != nil {
		return nested
	}
	for _, pid := range t.cfg.PIDs {
		if _, err := procmaps.StartTime(t.cfg.ProcFS, pid); err != nil {
			return err
		}
	}
	pids, err := t.pids()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	children := map[uint32][]uint32{}
	for pid := range pids {
		parent := t.parent(pid)
		children[parent] = append(children[parent], pid)
	}
	queue := slices.Clone(t.cfg.PIDs)
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if t.isSelected(pid) {
			continue
		}
		t.selected[pid], _ = procmaps.StartTime(t.cfg.ProcFS, pid)
		if err := t.cfg.Select(pid, true); err != nil {
			return fmt.Errorf("select process %d: %w", pid, err)
		}
		queue = append(queue, children[pid]...)
	}
	return nil
}

// checkSelected is for a user who named processes: one that cannot be read is
// an error, not a line in a table. One that hangs is none: it is read again with later scans.
func (t *Tracer) checkSelected() error {
	for _, pid := range t.cfg.PIDs {
		p := t.processes[pid]
		if p == nil {
			return fmt.Errorf("process %d: %w", pid, procmaps.ErrGone)
		}
		if errors.Is(p.err, procmaps.ErrStuck) {
			t.cfg.Warn(fmt.Sprintf("process %d hangs in the kernel: its libraries are not known until it continues", pid))
		} else if p.err != nil {
			return fmt.Errorf("read mappings of process %d: %w", pid, p.err)
		}
	}
	return nil
}

// warnEvery is how often the same warning is repeated.
const warnEvery = time.Minute

// warnIfNothing logs what was searched for, and where, when nothing was found.
func (t *Tracer) warnIfNothing() {
	s := t.Stats()
	t.mu.Lock()
	was := t.wasAttached
	t.mu.Unlock()
	if s.Attached > 0 || was {
		return
	}
	var names []string
	for _, library := range t.libraries {
		if !t.beside[library] {
			names = append(names, library+".so*")
		}
	}
	who := "no process"
	if len(t.cfg.PIDs) > 0 || s.Hidden > 0 {
		who = "no selected process"
	}
	text := fmt.Sprintf("nothing attached yet: %s has mapped %s (read the mappings of %d processes, %d unreadable)",
		who, strings.Join(names, " or "), s.Processes-s.Unreadable, s.Unreadable)
	if s.Hidden > 0 {
		text += fmt.Sprintf("; %d libraries are mapped only by processes that are not selected", s.Hidden)
	}
	if s.Files > 0 {
		text += fmt.Sprintf("; %d such files on disk are ready for the processes that will", s.Files)
	}
	t.mu.Lock()
	for _, p := range t.processes {
		for _, m := range p.files {
			if m.row.Status != StatusAttached {
				text += fmt.Sprintf("; process %d: %s: %s", m.row.PID, m.row.Path, m.row.Status)
				if m.row.Error != "" {
					text += " (" + m.row.Error + ")"
				}
				t.mu.Unlock()
				t.cfg.Warn(text)
				return
			}
		}
	}
	t.mu.Unlock()
	t.cfg.Warn(text)
}
