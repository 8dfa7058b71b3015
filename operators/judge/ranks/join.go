// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// JoinConfig of a Joiner.
type JoinConfig struct {
	// Hang and Straggler as in collective.Config; 0: its defaults.
	Hang, Straggler time.Duration
	// Store receives the progress of the ranks of all nodes, for metrics; may be nil.
	Store *Store
	// OnlyVerdicts leaves the progress of ranks out of Store: a dozen series for each.
	OnlyVerdicts bool
	// Report receives each verdict that is found, changed or cleared; one goroutine.
	Report func(profile.Hang)
}

// Joiner judges the ranks of many nodes as one job, by what their runs of nccl_trace
// report. It is safe for concurrent use.
type Joiner struct {
	cfg    JoinConfig
	silent collective.Time

	mu       sync.Mutex
	analyzer *collective.Analyzer
	nodes    map[string]*Node
	run      *storeRun
	refused  uint64
	began    collective.Time // that the first node was read; 0: none was
	cutOff   collective.Time // when most nodes were late last; 0: never
	isWhole  bool            // all nodes were read, or gathering is over
}

// A node's rows come each second. One that is cut off is not blamed for what it did meanwhile:
// half of the wait that is reported, within these bounds, is how old its rows may be.
const minSilent, maxSilent = 5 * time.Second, 15 * time.Second

// gathering is how long after the first node's rows those of the others are waited for:
// ranks whose rows are on their way are not elsewhere.
const gathering = collective.Time(10 * time.Second)

// removed is how long after its last rows a node is none any more. Until then it is late, since its ranks may
// still run.
const removed = collective.Time(5 * time.Minute)

// NewJoiner returns one that knows no node.
func NewJoiner(cfg JoinConfig) (*Joiner, error) {
	silent := maxSilent
	if cfg.Hang > 0 {
		silent = max(minSilent, min(maxSilent, cfg.Hang/2))
	}
	analyzer, err := collective.New(collective.Config{Hang: cfg.Hang, Straggler: cfg.Straggler, Silent: silent})
	if err != nil {
		return nil, err
	}
	return &Joiner{cfg: cfg, analyzer: analyzer, silent: collective.Time(silent), nodes: map[string]*Node{}}, nil
}

// Node is where the rows of a node go. The same name gives the same node: its ranks
// outlive a connection.
func (j *Joiner) Node(name string) *Node {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.nodes[name]
	if n == nil {
		n = &Node{joiner: j, name: name}
		n.forget()
		j.nodes[name] = n
	}
	return n
}

// Run judges once a second until ctx ends.
func (j *Joiner) Run(ctx context.Context) {
	if j.cfg.Store != nil {
		j.run = j.cfg.Store.begin()
		defer j.run.close()
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			j.Judge(time.Now())
		}
	}
}

// Judge compares all ranks, and reports what is new.
func (j *Joiner) Judge(at time.Time) {
	now := collective.Time(at.UnixNano())
	j.mu.Lock()
	for _, n := range j.nodes {
		if n.isRemoved(now) {
			n.forget()
		}
	}
	if !j.isGathered(now) {
		j.mu.Unlock()
		return
	}
	deriveRanks(j.all)
	for _, n := range j.nodes {
		n.observe(now)
	}
	if j.isCutOff(now) {
		j.publish(nil, now)
		j.mu.Unlock()
		return
	}
	events := j.analyzer.Evaluate(now)
	var progress []collective.Status
	if j.run != nil && !j.cfg.OnlyVerdicts {
		progress = slices.DeleteFunc(j.analyzer.Ranks(now), func(s collective.Status) bool {
			n := j.nodes[s.Process.Node]
			return n == nil || n.isLate(now)
		})
	}
	j.publish(progress, now)
	j.mu.Unlock()
	for i := range events {
		if j.cfg.Report != nil {
			j.cfg.Report(hangOf(&events[i], now))
		}
	}
}

// publish replaces what is exported. Progress of nodes that are late is left out: to the rules of dashboards/nccl.yaml, a rank
// of which nothing new is known is one that hangs. The lock is held.
func (j *Joiner) publish(progress []collective.Status, now collective.Time) {
	if j.run != nil {
		j.run.put(progress, j.analyzer.Verdicts(), now)
	}
}

// isCutOff reports whether no verdict would be right: most nodes are late, which are not silent, but this process is slow, or
// cut off from them. Then some of them come back before others, which are waited for. The lock is held.
func (j *Joiner) isCutOff(now collective.Time) bool {
	late, all := j.late(now)
	if 2*late > all {
		j.cutOff = now
		return true
	}
	return late > 0 && j.cutOff != 0 && now-j.cutOff < gathering
}

// Late returns how many nodes have ranks, and of how many the rows are too old to judge by. If it
// is most of them, none is judged.
func (j *Joiner) Late(at time.Time) (late, all int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.late(collective.Time(at.UnixNano()))
}

func (j *Joiner) late(now collective.Time) (late, all int) {
	for _, n := range j.nodes {
		if len(n.rows) == 0 {
			continue
		}
		all++
		if n.isLate(now) {
			late++
		}
	}
	return late, all
}

// isLate reports whether its rows are too old to judge by.
func (n *Node) isLate(now collective.Time) bool { return now-n.fresh > n.joiner.silent }

// Refused are observations that were not judged, or not in whole: too many ranks or peers, or contradictions.
func (j *Joiner) Refused() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.refused
}

// isGathered reports whether all nodes that are followed have been read once, or were waited
// for; the lock is held.
func (j *Joiner) isGathered(now collective.Time) bool {
	if j.isWhole {
		return true
	}
	missing := 0
	for _, n := range j.nodes {
		if !n.isRead {
			missing++
		}
	}
	j.isWhole = missing == 0 || j.began != 0 && now-j.began > gathering
	return j.isWhole
}

// observe passes the node's ranks to the analyzer, in wall time; the lock is held.
func (n *Node) observe(now collective.Time) {
	analyzer := n.joiner.analyzer
	for key, r := range n.rows {
		if n.heard-r.seen > r.kept() { // tables came without it
			delete(n.rows, key)
			continue
		}
		if r.Rank < 0 || r.isCreating() {
			continue
		}
		o := shifted(r.Observation, n.clock.toWall())
		o.Tenant = r.tenant(n.name)
		o.Process, o.Peers = r.process(n.name), shiftedPeers(r.peers, n.clock.toWall())
		t, isKnown := n.threads[threadKey{r.Process.ID, r.Communicator.ID(), r.Rank}]
		switch {
		case isKnown && now-t.seen < 5*collective.Time(period):
			o.State, o.Wchan, o.Stack, o.UserLine, o.StackIsLast = t.state, t.wchan, t.stack, t.user, t.isLast
		case now-r.changed < still:
			o.State = collective.Running
		}
		if len(o.Stack) == 0 {
			o.Stack, o.UserLine, o.StackIsLast = r.lines, "", true
		}
		o.State = r.end(o.State)
		if err := analyzer.Observe(o); err != nil {
			n.joiner.refused++
		}
		if r.exited != 0 {
			analyzer.Gone(o.Process, shift(r.exited, n.clock.toWall()))
		}
	}
	creations(n.rows, func(r *rank) {
		if analyzer.Creates(r.creation(n.name, n.clock.toWall())) != nil {
			n.joiner.refused++
		}
	})
	for key, t := range n.threads {
		if now-t.seen > forgotten {
			delete(n.threads, key)
		}
	}
}

// process is that of a rank, with its container.
func (r *rank) process(node string) collective.Process {
	p := r.Process
	p.Node, p.Namespace, p.Pod, p.Container = node, r.container.Namespace, r.container.Pod, r.container.Container
	return p
}

// tenant is whom a rank belongs to: its namespace, or its container on a node.
func (r *rank) tenant(node string) string {
	if r.container.Namespace != "" {
		return r.container.Namespace
	}
	return fmt.Sprint(node, " ", r.mntns)
}

// end is the rank's state, given what its thread does.
func (r *rank) end(state collective.State) collective.State {
	switch {
	case r.inactive == "aborted":
		return collective.Aborted
	case r.inactive == "destroyed":
		return collective.Destroyed
	}
	return state
}

func shift(t, by collective.Time) collective.Time {
	if t == 0 {
		return 0 // never, or not known
	}
	return t + by
}

// shifted is an observation by another clock. Slices of the original are left alone.
func shifted(o collective.Observation, by collective.Time) collective.Observation {
	o.At, o.DoneAt = shift(o.At, by), shift(o.DoneAt, by)
	operations := make([]collective.Operation, len(o.Operations))
	for i, op := range o.Operations {
		op.Enter, op.Return, op.PendingAt, op.DoneBy = shift(op.Enter, by), shift(op.Return, by), shift(op.PendingAt, by), shift(op.DoneBy, by)
		operations[i] = op
	}
	o.Operations = operations
	return o
}

func shiftedPeers(all []collective.Progress, by collective.Time) []collective.Progress {
	out := make([]collective.Progress, len(all))
	for i, p := range all {
		p.Enter = shift(p.Enter, by)
		out[i] = p
	}
	return out
}

// hangOf is a verdict for who is not on the node.
func hangOf(v *collective.Verdict, now collective.Time) profile.Hang {
	h := profile.Hang{
		Event: event(v), Time: time.Unix(0, int64(now)), Reason: string(v.Reason), Text: oneLine(v.String(now)),
		Communicator: v.Communicator.ID(), Name: oneLine(v.Communicator.Name), Size: int64(v.Communicator.Size), Seq: int64(v.Seq),
		Waiting: wide(v.Waiting), Unseen: wide(v.Unseen), Rank: -1, Waited: v.Waited(now), Process: hangProcess(containerOf(v.Witness)),
	}
	if v.Kind != 0 {
		h.Operation = v.Kind.String()
	}
	for _, l := range v.Lost {
		h.Nodes = append(h.Nodes, oneLine(l.Name))
	}
	for i, c := range v.Missing {
		h.Ranks = append(h.Ranks, int64(c.Rank))
		if i == 0 {
			h.Rank, h.State, h.Wchan = int64(c.Rank), c.State.String(), oneLine(c.Wchan)
			h.Process = hangProcess(c.Process)
			if _, folded := lines(c.Stack); folded != "" {
				h.Stack = stack.ParseFolded(folded)
				h.Stack.MarkInside(c.UserLine)
			}
		}
	}
	return h
}

func hangProcess(p collective.Process) profile.Process {
	out := profileOf(p)
	out.Comm, out.Node = oneLine(p.Comm), p.Node
	return out
}

func event(v *collective.Verdict) string {
	switch {
	case v.Cleared != 0:
		return "cleared"
	case v.Changed:
		return "changed"
	}
	return "found"
}

func wide(all []int) []int64 {
	var out []int64
	for _, n := range all {
		out = append(out, int64(n))
	}
	return out
}

// errTooMany bounds what one node can make a joiner keep.
var errTooMany = errors.New("more communicators on one node than the limit")

// maxNodeRanks is the size of the gadget's table.
const maxNodeRanks = 16384

// makeRoom drops ranks that are not in the newest table, if that has no room beside them: the gadget has deleted them, while
// others that were only left out of a reading are kept for a while.
func (n *Node) makeRoom(newest []row) {
	if len(n.rows)+len(newest) <= maxNodeRanks {
		return
	}
	there := map[rankKey]bool{}
	for _, r := range newest {
		there[rankKey{r.Process.ID, r.handle}] = true
	}
	maps.DeleteFunc(n.rows, func(key rankKey, _ *rank) bool { return !there[key] })
}

func (n *Node) put(r row, now collective.Time) error {
	key := rankKey{r.Process.ID, r.handle}
	known := n.rows[key]
	if known == nil {
		if len(n.rows) >= maxNodeRanks {
			return fmt.Errorf("%w: %d", errTooMany, maxNodeRanks)
		}
		known = &rank{changed: now}
		n.rows[key] = known
	} else if len(r.Operations) > 0 && (len(known.Operations) == 0 ||
		r.Operations[len(r.Operations)-1].Enter != known.Operations[len(known.Operations)-1].Enter) {
		known.changed = now
	}
	r.container = r.container.Staying(known.container)
	r.keep(&known.row)
	known.row, known.seen = r, now
	return nil
}
