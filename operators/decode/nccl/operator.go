// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective/membership"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	// Name of the operator.
	Name = "nccl"
	// Priority is after attach (-100), whose rows it reads, and before operators/judge.
	Priority = 40

	communicatorsSource = "communicators"
	attachmentsSource   = "attachments"
	communicatorsMap    = "communicators_by_handle"

	// Ended communicators beyond so many are deleted, after they were readable for so long.
	endedKept  = 512
	endedGrace = time.Minute
)

// Config of the operator.
type Config struct {
	// ProcFS is the host's procfs; default /proc.
	ProcFS string
	// Maps opens mapped files; its ProcFS must be the same.
	Maps *procmaps.Cache
}

// Operator completes the rows of nccl_trace: the identity of communicators that were
// created before attach, and the rank of a split (which else operators/judge/ranks may derive). It reports once what does not work with
// a library.
type Operator struct{ cfg Config }

var _ operators.DataOperator = (*Operator)(nil)

// New returns the operator, for main to register.
func New(cfg Config) *Operator {
	if cfg.ProcFS == "" {
		cfg.ProcFS = "/proc"
	}
	return &Operator{cfg}
}

func (*Operator) Name() string               { return Name }
func (*Operator) Priority() int              { return Priority }
func (*Operator) Init(*params.Params) error  { return nil }
func (*Operator) GlobalParams() api.Params   { return nil }
func (*Operator) InstanceParams() api.Params { return nil }

// InstantiateDataOperator skips other gadgets, and clients, because the processes are on
// the other machine.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, _ api.ParamValues) (operators.DataOperatorInstance, error) {
	ds := gc.GetDataSources()[communicatorsSource]
	if ds == nil || gc.IsClient() {
		return nil, nil
	}
	if _, err := ig.MapSpec(gc, communicatorsMap); err != nil {
		return nil, nil
	}
	points, err := ig.AttachPoints(gc)
	if err != nil {
		return nil, fmt.Errorf("read attach points: %w", err)
	}
	i := &instance{logger: gc.Logger(), reported: map[string]bool{}, ended: map[communicatorKey]time.Time{}, identities: identities{
		inspector: inspector{procfs: o.cfg.ProcFS, maps: o.cfg.Maps, files: map[fileKey]inspected{}},
		known:     map[communicatorKey]*answer{}, ours: map[uint64]uint64{}, opened: map[uint32]*opened{},
	}}
	if layout, err := layoutOfSums(gc); err == nil {
		i.sumsAt = &layout
	} else if !errors.Is(err, ig.ErrAbsent) {
		i.warn("sums of destroyed communicators are not removed: %v", err)
	}
	for _, p := range points {
		if p.Library == membership.NCCL && strings.HasPrefix(p.Symbol, "nccl") {
			i.wanted = append(i.wanted, p.Symbol)
		}
	}
	if i.fields, err = bindFields(ds); err != nil {
		return nil, err
	}
	if err := ds.SubscribeArray(func(_ datasource.DataSource, a datasource.DataArray) error {
		if err := i.complete(a, time.Now()); err != nil {
			i.warn("complete communicators: %v", err)
		}
		return nil // an error would keep the rows from other subscribers
	}, Priority); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", communicatorsSource, err)
	}
	if attachments := gc.GetDataSources()[attachmentsSource]; attachments != nil {
		pid, path, status := attachments.GetField("pid"), attachments.GetField("path"), attachments.GetField("status")
		if err := attachments.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
			p, _ := pid.Uint32(d)
			at, _ := path.String(d)
			s, _ := status.String(d)
			i.attached(p, at, s)
			return nil
		}, Priority); err != nil {
			return nil, fmt.Errorf("subscribe to %s: %w", attachmentsSource, err)
		}
	}
	return i, nil
}

// instance is one run.
type instance struct {
	logger interface {
		Warnf(string, ...any)
		Infof(string, ...any)
	}
	fields fields
	rows   *ebpf.Map
	sumsAt *sumsLayout // nil: the gadget has none
	sums   *sums       // likewise

	mu sync.Mutex
	identities
	pass     int
	reported map[string]bool
	ended    map[communicatorKey]time.Time
	warned   throttle.Throttle
}

func (*instance) Name() string { return Name }

// Start implements operators.DataOperatorInstance.
func (i *instance) Start(gc operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	// Without the maps nothing is deleted.
	if m, err := ig.Map(gc, communicatorsMap); err == nil {
		i.rows = m
	}
	operations, err := ig.Map(gc, operationsMap)
	peers, err2 := ig.Map(gc, peersMap)
	if i.rows != nil && i.sumsAt != nil && errors.Join(err, err2) == nil {
		i.sums = &sums{communicators: i.rows, tables: []*ebpf.Map{operations, peers}, layout: *i.sumsAt}
	}
	return nil
}

// Stop implements operators.DataOperatorInstance.
func (i *instance) Stop(operators.GadgetContext) error { return nil }

// Close implements operators.DataOperatorInstance.
func (i *instance) Close(operators.GadgetContext) error { return nil }

func (i *instance) warn(format string, args ...any) {
	if suppressed, ok := i.warned.Pass(time.Now()); ok {
		text := fmt.Sprintf(format, args...)
		if suppressed > 0 {
			text += fmt.Sprintf(" (and %d more)", suppressed)
		}
		i.logger.Warnf("%s", text)
	}
}

// fields of `communicators`.
type fields struct {
	process, handle, created, identity, exit datasource.FieldAccessor
	pid, late                                datasource.FieldAccessor
	rank, size, device                       datasource.FieldAccessor
	state                                    datasource.FieldAccessor
}

func bindFields(ds datasource.DataSource) (f fields, err error) {
	for name, to := range map[string]*datasource.FieldAccessor{
		"process": &f.process, "communicator": &f.handle, "created_boot_ns": &f.created, "identity": &f.identity,
		"exit_boot_ns": &f.exit, "proc.pid": &f.pid, "late": &f.late, "rank": &f.rank, "size": &f.size,
		"device": &f.device, "state": &f.state,
	} {
		if *to = ds.GetField(name); *to == nil {
			return f, fmt.Errorf("%s has no field %s: the gadget is older or newer than this program", ds.Name(), name)
		}
	}
	return f, nil
}

// complete identifies communicators by their memory; first those that are known, because
// they identify the others.
func (i *instance) complete(a datasource.DataArray, now time.Time) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pass++
	type late struct {
		row datasource.Data
		id  *Identity
	}
	var behind []late
	var ended []communicatorKey
	var failed []error
	for n := range a.Len() {
		row := a.Get(n)
		f := &i.fields
		r := request{}
		r.process, _ = f.process.Uint64(row)
		r.handle, _ = f.handle.Uint64(row)
		r.created, _ = f.created.Uint64(row)
		r.identity, _ = f.identity.Uint64(row)
		r.pid, _ = f.pid.Uint32(row)
		exited, _ := f.exit.Uint64(row)
		state, _ := f.state.String(row)
		if state == "destroyed" || state == "aborted" {
			ended = append(ended, r.communicatorKey)
		}
		a := i.known[r.communicatorKey]
		if exited != 0 || (state != "active" && a == nil) {
			continue // its memory no longer exists
		}
		id, err := i.identify(r, now, i.pass)
		isLate, _ := f.late.Uint32(row)
		if id == nil {
			if isLate != 0 && !errors.Is(err, ErrNotReady) && !errors.Is(err, procmaps.ErrGone) {
				i.once(i.logger.Warnf, fmt.Sprintf("communicators created before attach have no identity, and are not compared: %v", err))
			}
			continue
		}
		if rank, err := f.rank.Int32(row); err == nil && rank < 0 {
			failed = append(failed, f.rank.PutInt32(row, id.Rank))
		}
		if size, err := f.size.Int32(row); err == nil && size < 0 {
			failed = append(failed, f.size.PutInt32(row, id.Size))
		}
		if device, err := f.device.Int32(row); err == nil && device < 0 {
			failed = append(failed, f.device.PutInt32(row, id.Device))
		}
		if r.identity == 0 {
			behind = append(behind, late{row, id})
		}
	}
	for _, l := range behind {
		identity, ok := i.ours[l.id.Hash]
		if !ok {
			identity = l.id.Hash
		}
		failed = append(failed, i.fields.identity.PutUint64(l.row, identity))
	}
	i.forget(i.pass)
	i.delete(ended, now)
	return errors.Join(append(failed, i.sums.sweep(now))...)
}

// delete makes room if programs keep creating and destroying communicators. Those of this pass that
// have ended are all that it remembers: the others' processes have exited, or their handles were used
// again.
func (i *instance) delete(ended []communicatorKey, now time.Time) {
	was := i.ended
	i.ended = make(map[communicatorKey]time.Time, len(ended))
	for _, key := range ended {
		since, seen := was[key]
		if !seen {
			since = now
		}
		i.ended[key] = since
	}
	if i.rows == nil {
		return
	}
	for _, key := range ended {
		if now.Sub(i.ended[key]) < endedGrace || len(i.ended) < endedKept {
			continue
		}
		if err := i.rows.Delete(struct{ Process, Handle uint64 }{key.process, key.handle}); err == nil || errors.Is(err, ebpf.ErrKeyNotExist) {
			delete(i.ended, key)
		}
	}
}

// attached reports what does not work with a library.
func (i *instance) attached(pid uint32, path, status string) {
	if !membership.IsLibrary(path) || (status != "attached" && status != "no symbols") {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if status == "no symbols" {
		if !procmaps.IsLibrary(path, membership.Torch) {
			i.once(i.logger.Warnf, fmt.Sprintf("%s is named like NCCL but exports none of its functions: calls to it are not traced", path))
		}
		return
	}
	library, at, err := i.of(pid)
	if err != nil || at != path {
		return
	}
	for _, text := range Warnings(library, path) {
		i.once(i.logger.Infof, text)
	}
}

// Warnings returns what does not work with a library, and what does: nothing for a known
// and complete one.
func Warnings(l *Library, path string) (texts []string) {
	if len(l.Missing) > 0 {
		texts = append(texts, fmt.Sprintf("%s (%s) has no %s; its other %d functions are traced",
			path, l, strings.Join(l.Missing, ", "), l.Has))
	}
	if l.layout != nil {
		texts = append(texts, fmt.Sprintf("%s (%s): communicators created before attach will have no identity: %v. Later ones are traced; "+
			"those of ncclCommSplit are judged only if all ranks of the first one are seen, or the program asks for its rank and their number",
			path, l, l.layout))
	}
	return texts
}

// maxReported bounds the texts that are kept.
const maxReported = 256

func (i *instance) once(log func(string, ...any), text string) {
	if i.reported[text] || len(i.reported) >= maxReported {
		return
	}
	i.reported[text] = true
	log("%s", text)
}
