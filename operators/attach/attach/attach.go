// SPDX-License-Identifier: Apache-2.0

// Package attach is the Inspektor Gadget operator that attaches our gadgets'
// programs to the libraries of running processes (package tracer), instead of
// ig itself, which knows only the libraries in ld.so.cache. It takes part in
// the runs of gadgets that have a table of attach points, and reports in the data
// source "attachments" what was attached where.
package attach

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/attachpoint"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/containers"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/pages"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

const (
	// Name of the operator.
	Name = "attach"
	// Priority is after the programs are loaded (oci, -1000), before the
	// container managers (-1), which learn here that they are needed.
	Priority = -100

	paramPID  = "pid"
	paramScan = "scan-interval"
	paramMode = "attach-mode"

	// pointPrograms is the array of a gadget for kernels without cookies; see
	// ATTACH_PROGRAMS_OF_POINTS in bpf/call/attach_point.h.
	pointPrograms = "attach_enter_points"
)

// Config of the operator.
type Config struct {
	// ProcFS is the host's procfs.
	ProcFS string
	// Maps keeps the mappings of traced processes, for naming addresses. Its
	// ProcFS must be the same.
	Maps *procmaps.Cache
}

// Operator implements operators.DataOperator.
type Operator struct{ cfg Config }

var _ operators.DataOperator = (*Operator)(nil)

// New returns the operator, to be registered by main.
func New(cfg Config) *Operator { return &Operator{cfg} }

func (o *Operator) Name() string              { return Name }
func (o *Operator) Priority() int             { return Priority }
func (o *Operator) Init(*params.Params) error { return nil }
func (o *Operator) GlobalParams() api.Params  { return nil }

func (o *Operator) InstanceParams() api.Params {
	return api.Params{
		{
			Key:         paramPID,
			Title:       "Process IDs",
			Description: "Trace only these processes (comma-separated) and their descendants",
			TypeHint:    api.TypeString,
		},
		{
			Key:          paramScan,
			Title:        "Scan interval",
			Description:  "Interval of the search for processes that no event reported",
			DefaultValue: "1s",
			TypeHint:     api.TypeDuration,
		},
		{
			Key:            paramMode,
			Title:          "Attach mode",
			Description:    "How to attach: multi (uprobe_multi, Linux 6.6), perf, or auto",
			DefaultValue:   string(tracer.Auto),
			TypeHint:       api.TypeString,
			PossibleValues: []string{string(tracer.Auto), string(tracer.Multi), string(tracer.Perf)},
		},
	}
}

// InstantiateDataOperator stays out of runs of other gadgets, and of those on
// the client's side of a connection, where there are no programs.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	table, err := ig.AttachPoints(gc)
	if err != nil {
		return nil, fmt.Errorf("read attach points: %w", err)
	}
	if len(table) == 0 {
		return nil, nil
	}
	i := &instance{op: o, logger: gc.Logger()}
	if i.static, table, err = splitStatic(table); err != nil {
		return nil, fmt.Errorf("read attach points: %w", err)
	}
	i.cfg.Points = points(table)
	if i.cfg.PIDs, err = selection.Parse(values[paramPID]); err != nil {
		return nil, fmt.Errorf("--%s: %w", paramPID, err)
	}
	if s := values[paramScan]; s != "" {
		if i.cfg.ScanInterval, err = duration.Parse(s); err != nil || i.cfg.ScanInterval < 10*time.Millisecond {
			return nil, fmt.Errorf("--%s: want a duration of at least 10ms, not %q", paramScan, s)
		}
	}
	i.cfg.Mode = tracer.Mode(values[paramMode])
	i.cfg.ProcFS, i.cfg.Maps = o.cfg.ProcFS, o.cfg.Maps

	if _, err := ig.MapSpec(gc, pointPrograms); err == nil {
		i.points = table
	}
	mode := attachpoint.Perf
	if i.cfg.Mode == tracer.Multi || (i.cfg.Mode != tracer.Perf && features.HaveBPFLinkUprobeMulti() == nil) {
		mode = attachpoint.Multi // as the tracer will choose
	}
	if i.points == nil { // else the programs are those of the stock sections
		ig.SetAttachMode(gc, mode)
	}
	if err := ig.RemoveStock(gc, table); err != nil {
		return nil, fmt.Errorf("keep ig from attaching: %w", err)
	}
	if len(i.cfg.PIDs) > 0 {
		if _, err := ig.MapSpec(gc, selection.SelectedMap); err != nil {
			return nil, fmt.Errorf("--%s: this gadget cannot be restricted to processes: %w", paramPID, err)
		}
	}
	if err := containers.Follow(gc, i.addContainer, i.removeContainer); err != nil && !errors.Is(err, ig.ErrAbsent) {
		return nil, fmt.Errorf("follow containers: %w", err)
	}
	if i.rows, err = newRows(gc); err != nil {
		return nil, fmt.Errorf("add data source %s: %w", DataSource, err)
	}
	return i, nil
}

// instance is one run of a gadget.
type instance struct {
	op     *Operator
	logger interface {
		Info(...any)
		Warn(...any)
	}
	cfg  tracer.Config
	rows *rows
	// points is the table of a gadget that has an entry program for each.
	points []attachpoint.Point
	static []staticPoint

	programs []*ebpf.Program
	tracer   *tracer.Tracer
	failed   error // of Start, until Stop has returned it

	mu sync.Mutex
	// selected are the mount namespaces of the containers that the user
	// selected, and when they ended; they count when filtered is set.
	selected map[uint64]time.Time
	filtered bool
}

func (i *instance) Name() string { return Name }

// PreStart finds the mistakes of a user before anything is running.
func (i *instance) PreStart(operators.GadgetContext) error {
	procfs := i.cfg.ProcFS
	if procfs == "" {
		procfs = "/proc"
	}
	return tracer.Check(procfs, i.cfg.PIDs)
}

// Start attaches. It returns when what is mapped now is attached to. A failure
// ends the run and is returned by Stop: Inspektor Gadget v0.55.0 hangs when
// Start returns an error, because it then stops the operator ebpf without its
// PreStop, and that waits for iterators which only PreStop ends
// (pkg/gadget-context/run.go, start; pkg/operators/ebpf/ebpf.go, Stop).
func (i *instance) Start(gc operators.GadgetContext) error {
	if i.failed = i.start(gc); i.failed != nil {
		gc.Cancel()
	}
	return nil
}

func (i *instance) start(gc operators.GadgetContext) error {
	if err := i.takePrograms(gc); err != nil {
		return err
	}
	if err := i.takeStatic(gc); err != nil {
		return fmt.Errorf("prepare for static probes: %w", err)
	}
	if err := i.takeDemands(gc); err != nil {
		return fmt.Errorf("prepare for probes on demand: %w", err)
	}
	if err := i.takeThreadLocals(gc); err != nil {
		return fmt.Errorf("prepare for thread-local variables: %w", err)
	}
	if len(i.cfg.PIDs) > 0 {
		if err := i.restrict(gc); err != nil {
			return fmt.Errorf("restrict the gadget to processes: %w", err)
		}
	}
	i.mu.Lock()
	i.filtered = ig.FiltersContainers(gc)
	i.mu.Unlock()
	i.cfg.Visible = i.visible
	i.cfg.Report = func(a tracer.Attachment) {
		if err := i.rows.emit(a); err != nil {
			i.logger.Warn("attachment was not reported: ", err)
		}
	}
	i.cfg.Warn = func(text string) { i.logger.Warn(text) }
	i.cfg.Ended = func() { ig.EndWithProcesses(gc, paramPID) }
	t, err := tracer.New(i.cfg)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	if err := t.Start(gc.Context()); err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	i.mu.Lock()
	i.tracer = t
	i.mu.Unlock()
	started(gc, t)
	return nil
}

// restrict makes the programs ignore all processes that are not selected. The
// programs themselves add the children of those that are.
func (i *instance) restrict(gc ig.Context) error {
	inForce, err := ig.Map(gc, selection.InForceMap)
	if err != nil {
		return err
	}
	selected, err := ig.Map(gc, selection.SelectedMap)
	if err != nil {
		return err
	}
	i.cfg.Select = func(tgid uint32, yes bool) error {
		if yes {
			return selected.Put(tgid, uint32(1))
		}
		if err := selected.Delete(tgid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		return nil
	}
	return inForce.Put(uint32(0), uint32(1))
}

// takePrograms looks the generic programs up. The arrays of one way to attach
// may be missing.
func (i *instance) takePrograms(gc ig.Context) error {
	for array, program := range map[string]**ebpf.Program{
		"attach_enter":       &i.cfg.Programs.Enter,
		"attach_exit":        &i.cfg.Programs.Exit,
		"attach_enter_multi": &i.cfg.Programs.EnterMulti,
		"attach_exit_multi":  &i.cfg.Programs.ExitMulti,

		"attach_sleeping_enter":       &i.cfg.Programs.SleepingEnter,
		"attach_sleeping_enter_multi": &i.cfg.Programs.SleepingEnterMulti,
	} {
		p, err := ig.Program(gc, array)
		if errors.Is(err, ig.ErrAbsent) {
			continue
		}
		if err != nil {
			return fmt.Errorf("take the gadget's programs: %w", err)
		}
		*program = p
		i.programs = append(i.programs, p)
	}
	if i.points == nil {
		return nil
	}
	// These programs cannot wait for a page, and who has it may keep this one waiting, too.
	i.cfg.Prepare = func(pid uint32) {
		_ = i.cfg.Maps.Within(pid, fmt.Sprint("memory of ", pid), func() { _, _ = pages.Python(i.cfg.ProcFS, pid) })
	}
	programs, err := ig.Programs(gc, pointPrograms)
	if err != nil {
		return fmt.Errorf("take the gadget's programs: %w", err)
	}
	i.cfg.Programs.EnterPoint = map[uint32]*ebpf.Program{}
	for slot, p := range programs {
		i.programs = append(i.programs, p)
		if int(slot) < len(i.points) {
			i.cfg.Programs.EnterPoint[i.points[slot].Cookie] = p
		}
	}
	return nil
}

// Stop ends the search for libraries. Its error is that of Start. The probes
// stay until Close: removing them can take seconds, and results are written
// between the two.
func (i *instance) Stop(operators.GadgetContext) error {
	if t := i.running(); t != nil {
		t.Halt()
	}
	err := i.failed
	i.failed = nil
	return err
}

// unnoticed is how long the end may take without an explanation.
const unnoticed = time.Second

// Close detaches everything. It is called without Start and Stop too.
func (i *instance) Close(operators.GadgetContext) error {
	if t := i.running(); t != nil {
		explain := time.AfterFunc(unnoticed, func() {
			i.logger.Warn("all is written; removing the probes one by one takes some seconds (at once from Linux 6.6 on)")
		})
		t.Stop()
		explain.Stop()
	}
	for _, p := range i.programs {
		p.Close()
	}
	i.programs = nil
	return nil
}

func (i *instance) running() *tracer.Tracer {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.tracer
}

// farewell is how long after its end a container still counts, so that its
// processes are seen to go.
const farewell = 10 * time.Second

// visible: the user selected the container that the process is in.
func (i *instance) visible(a tracer.Attachment) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.filtered {
		return true
	}
	end, ok := i.selected[a.MountNS]
	return ok && (end.IsZero() || time.Since(end) < farewell)
}

// addContainer is called before the container's first instruction, where containers are
// found by a hook. It may hold the container back for as long as attaching takes.
func (i *instance) addContainer(c *containers.Container) {
	if t := i.running(); t != nil && c.ContainerPid() != 0 {
		t.Expect(c.ContainerPid())
	}
	i.mu.Lock()
	if i.selected == nil {
		i.selected = map[uint64]time.Time{}
	}
	end, known := i.selected[c.Mntns]
	i.selected[c.Mntns] = time.Time{}
	t, filtered := i.tracer, i.filtered
	i.mu.Unlock()
	if t != nil && filtered && (!known || !end.IsZero()) {
		t.ReportAgain(func(a tracer.Attachment) bool { return a.MountNS == c.Mntns })
	}
}

func (i *instance) removeContainer(c *containers.Container) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for mntns, end := range i.selected {
		if !end.IsZero() && time.Since(end) >= farewell {
			delete(i.selected, mntns)
		}
	}
	if _, ok := i.selected[c.Mntns]; ok {
		i.selected[c.Mntns] = time.Now()
	}
}
