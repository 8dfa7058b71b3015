// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Config of an Analyzer. The zero value has the defaults.
type Config struct {
	// Hang is the wait of a rank after which a verdict is reported; default 30 s. Pauses
	// for checkpoints and evaluations are shorter.
	Hang time.Duration
	// Straggler is the lateness, at the median of the last Arrivals series of collectives, from
	// which on a rank counts as a straggler; default 10 ms, which is more than clocks differ
	// between nodes that run NTP.
	Straggler time.Duration
	// StragglerShare is the same as a share of the pauses in which no rank issues
	// anything, that is, of most programs' steps; default 0.1. The larger of both
	// counts.
	StragglerShare float64
	// Slowdown is the share by which iterations have to take longer than before to be
	// reported, such as 0.15; default 0: not reported. A server's iterations are as far apart
	// as its requests.
	Slowdown float64
	// Silent is the time without an observation after which a rank is no longer
	// judged; default 60 s.
	Silent time.Duration
	// Keep is how long ended and unobserved ranks are kept; default 10 min. Longer
	// than Hang.
	Keep time.Duration
	// MaxRanks bounds memory: ranks over all communicators; default 98,304, 5 KB
	// each at most, and eight times as many peers of sends and receives, 0.1 KB each. The last quarter of
	// both is for tenants with less than a quarter.
	MaxRanks int
}

// Arrivals is the number of series of collectives of a communicator over which lateness
// is measured.
const Arrivals = 64

// ErrFull means that the rank is not followed, because there are MaxRanks already. The caller counts it.
var ErrFull = errors.New("too many ranks")

// ErrPeers means that not all peers of the rank are followed, because there are too many already. The rest of the observation
// counts.
var ErrPeers = errors.New("too many peers of sends and receives")

// ErrImplausible means that the observation contradicts itself, which a hostile process can do.
var ErrImplausible = errors.New("implausible observation")

// maxIssued is more collectives than a rank issues in years, and leaves room to count on.
const maxIssued = 1 << 48

// MaxSize is the largest plausible size of a communicator.
const MaxSize = 1 << 20

// Analyzer compares ranks. It is not safe for concurrent use.
type Analyzer struct {
	cfg   Config
	comms map[uint64]*communicator
	ranks int
	of    map[string]int // of each tenant
	// peers of all ranks, and of those of each tenant.
	peers   int
	peersOf map[string]int
	paces   int // communicators whose pace is measured
	// members of a process, so that its end need not be searched for.
	members   map[processKey]map[*member]struct{}
	open      map[verdictKey]*Verdict
	creations creations
	// streams are computed on first use in an Evaluate.
	streams map[streamKey]*streamState
	// heard is when something was heard last of each node, computed likewise.
	heard map[string]Time
}

// New returns an Analyzer without ranks.
func New(cfg Config) (*Analyzer, error) {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&cfg.Hang, 30*time.Second)
	set(&cfg.Straggler, 10*time.Millisecond)
	set(&cfg.Silent, time.Minute)
	set(&cfg.Keep, 10*time.Minute)
	if cfg.StragglerShare == 0 {
		cfg.StragglerShare = 0.1
	}
	if cfg.MaxRanks == 0 {
		cfg.MaxRanks = 96 << 10
	}
	if cfg.Hang < 0 || cfg.Straggler < 0 || cfg.Silent < 0 || cfg.Keep < 0 || cfg.StragglerShare < 0 || cfg.Slowdown < 0 || cfg.MaxRanks < 0 {
		return nil, errors.New("a threshold is negative")
	}
	return &Analyzer{cfg: cfg, comms: map[uint64]*communicator{}, of: map[string]int{}, peersOf: map[string]int{}, members: map[processKey]map[*member]struct{}{},
		open: map[verdictKey]*Verdict{}}, nil
}

// communicator has the ranks that were observed of a communicator.
type communicator struct {
	Communicator
	members  map[int]*member
	arrivals arrivals
	pace     *pace // nil: not measured
	// late: one of its ranks was attached to late.
	late bool
	// passed is the newest collective that all ranks are known to have issued, as one has completed it.
	passed uint64
}

// member is a rank of a communicator.
type member struct {
	Observation
	comm   *communicator
	tenant string // that it counts for
	unit   unit   // as of the newest Evaluate
	peers  map[peerKey]Progress
	order  []peerKey // of peers
	// morePeers: not all are in peers, because there was no room for them here or in the gadget.
	morePeers bool
	// advanced is when it entered its newest collective.
	advanced Time
	// blocked is how much it waits for collectives.
	blocked blocked
	// passed is the newest collective whose completion here shows that all ranks have issued it.
	passed uint64
	ended  Time // when its process was reported as ended; 0
	died   Time // since when it is known to be dead; 0: it is not
	// mark is its newest collective whose number is a multiple of Milestone.
	mark   uint64
	markAt Time
}

type peerKey struct {
	kind Kind
	peer int
}

// Observe updates the state of a rank. The Analyzer owns the slices after that. Errors:
// ErrFull, ErrImplausible; the observation is then ignored. ErrPeers: it counts without some peers.
func (a *Analyzer) Observe(o Observation) error {
	c := o.Communicator
	if o.Rank < 0 || o.Rank >= MaxSize || c.Size < 0 || c.Size > MaxSize || c.Size > 0 && o.Rank >= c.Size {
		return fmt.Errorf("%w: rank %d of %d", ErrImplausible, o.Rank, c.Size)
	}
	if o.Done > o.Issued || o.Issued > maxIssued {
		return fmt.Errorf("%w: collective %d done, %d issued", ErrImplausible, o.Done, o.Issued)
	}
	comm := a.comms[c.Hash]
	if comm == nil {
		if !a.hasRoom(o.Tenant, nil) {
			return ErrFull
		}
		comm = &communicator{Communicator: c, members: map[int]*member{}}
	}
	if comm.Size == 0 {
		comm.Size = c.Size
	}
	if comm.Name == "" {
		comm.Name = c.Name
	}
	m := comm.members[o.Rank]
	if m != nil && m.Process.key() != o.Process.key() {
		if o.At < m.At {
			return nil // of the process that was the rank before
		}
		if o.Process.Node != m.Process.Node && m.ended == 0 && !m.isSilent(o.At, a.cfg.Silent) {
			return fmt.Errorf("%w: rank %d of communicator %s runs on another node", ErrImplausible, o.Rank, c)
		}
		if !a.hasRoom(o.Tenant, m) {
			return ErrFull
		}
		a.remove(m)
		m = a.add(comm, o)
	} else if m == nil {
		if !a.hasRoom(o.Tenant, nil) {
			return ErrFull
		}
		m = a.add(comm, o)
	} else if o.At < m.At || m.ended != 0 {
		return nil // older than the current state
	}
	if len(o.Operations) > History+1 {
		o.Operations = o.Operations[len(o.Operations)-History:]
	}
	size := cmp.Or(c.Size, comm.Size, MaxSize)
	o.Communicator = comm.Communicator
	before, at := m.Operations, m.At
	m.update(o)
	isWhole := a.follow(m, o.Peers, size)
	m.hold(before)
	m.blocked.add(at, o.At, m.waits(o.At))
	comm.late = comm.late || o.Late
	comm.arrivals.add(comm)
	a.paced(comm, m)
	if !isWhole {
		return ErrPeers
	}
	return nil
}

// update replaces the state of the rank, and keeps values that were more precise.
func (m *member) update(o Observation) {
	if len(o.Stack) == 0 && o.Issued == m.Issued {
		o.Stack, o.UserLine, o.StackIsLast = m.Stack, m.UserLine, m.StackIsLast
	}
	o.Process = o.Process.staying(m.Process)
	m.Observation = o
	m.Peers = nil // in peers
	m.dies(o.At)
	for n := range o.Operations {
		op := &o.Operations[n]
		if op.Kind.IsPeer() {
			continue
		}
		if (op.DoneBy != 0 || op.Seq == o.Done) && op.showsAll(m.Rank) {
			m.passed = max(m.passed, op.Seq)
		}
		m.comm.passed = max(m.comm.passed, m.passed)
		m.advanced = max(m.advanced, op.Enter)
		if op.Seq%Milestone == 0 && op.Seq > m.mark {
			m.mark, m.markAt = op.Seq, op.Enter
		}
	}
}

// dies notes since when it is dead.
func (m *member) dies(at Time) {
	switch {
	case !m.State.IsDead():
		m.died = 0
	case m.died == 0:
		m.died = max(at, 1)
	}
}

// operation returns a collective of the rank by number; nil if it is no longer, or not
// yet, among the newest.
func (m *member) operation(seq uint64) *Operation {
	for i := range m.Operations {
		if o := &m.Operations[i]; o.Seq == seq && !o.Kind.IsPeer() {
			return o
		}
	}
	return nil
}

func (m *member) peerOperation(key peerKey, seq uint64) *Operation {
	for i := range m.Operations {
		if o := &m.Operations[i]; o.Seq == seq && o.Kind == key.kind && o.Peer == key.peer {
			return o
		}
	}
	return nil
}

// add adds a rank to a communicator, which may have had none.
func (a *Analyzer) add(comm *communicator, o Observation) *member {
	m := &member{comm: comm, tenant: o.Tenant, peers: map[peerKey]Progress{}}
	a.comms[comm.Hash], comm.members[o.Rank] = comm, m
	key := o.Process.key()
	if a.members[key] == nil {
		a.members[key] = map[*member]struct{}{}
	}
	a.members[key][m] = struct{}{}
	a.of[m.tenant]++
	a.ranks++
	return m
}

// Has reports whether a process has ranks that are followed.
func (a *Analyzer) Has(p Process) bool { return len(a.members[p.key()]) > 0 }

// Gone reports that a process has ended: all its ranks ended at that time.
func (a *Analyzer) Gone(p Process, at Time) {
	for m := range a.members[p.key()] {
		if m.State != Destroyed && m.State != Aborted {
			m.State = Gone
		}
		m.ended, m.At = max(at, 1), max(m.At, at)
		m.dies(at)
	}
}

func (a *Analyzer) remove(m *member) {
	delete(m.comm.members, m.Rank)
	if len(m.comm.members) == 0 {
		delete(a.comms, m.comm.Hash)
		if m.comm.pace != nil {
			m.comm.pace = nil
			a.paces--
		}
	}
	key := m.Process.key()
	delete(a.members[key], m)
	if len(a.members[key]) == 0 {
		delete(a.members, key)
	}
	a.ranks--
	a.peers -= len(m.peers)
	if a.peersOf[m.tenant] -= len(m.peers); a.peersOf[m.tenant] == 0 {
		delete(a.peersOf, m.tenant)
	}
	if a.of[m.tenant]--; a.of[m.tenant] == 0 {
		delete(a.of, m.tenant)
	}
}

// hasRoom reports whether one more rank of a tenant is followed: instead of another one, unless that is nil.
func (a *Analyzer) hasRoom(tenant string, instead *member) bool {
	ranks := a.ranks
	if instead != nil {
		if instead.tenant == tenant {
			return true
		}
		ranks--
	}
	return throttle.HasRoom(ranks, a.cfg.MaxRanks, func() int { return a.of[tenant] })
}

// keepEnded is for how long ranks stay at least after all of their communicator have ended here: the ranks of other nodes may
// wait for them, and rules need time to see why.
const keepEnded = Time(120e9)

// forget removes ranks that ended, or were last observed, Keep ago. Those that an open
// verdict names, or whose node it names, stay while other ranks of the communicator run.
func (a *Analyzer) forget(now Time) {
	for _, c := range a.comms {
		alive := false
		for _, m := range c.members {
			alive = alive || !m.isSilent(now, a.cfg.Keep) && m.ended == 0
		}
		for _, m := range c.members {
			old := m.isSilent(now, a.cfg.Keep)
			if !alive && m.ended != 0 && now-m.ended > max(Time(a.cfg.Hang), keepEnded) || old && (!alive || !a.isNamed(m)) {
				a.remove(m)
			}
		}
	}
}

func (a *Analyzer) isNamed(m *member) bool {
	for _, v := range a.open {
		if slices.ContainsFunc(v.Missing, func(c Culprit) bool { return c.Process.key() == m.Process.key() }) ||
			slices.ContainsFunc(v.Lost, func(l LostNode) bool { return l.Name == m.Process.Node }) {
			return true
		}
	}
	return false
}

func (m *member) isSilent(now Time, limit time.Duration) bool { return now-m.At > Time(limit) }

// sorted returns ranks, and communicators, in an order by which the same input gives the
// same output.
func (c *communicator) sorted() []*member {
	out := make([]*member, 0, len(c.members))
	for _, m := range c.members {
		out = append(out, m)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Rank < out[j].Rank })
	return out
}

func (a *Analyzer) sorted() []*communicator {
	out := make([]*communicator, 0, len(a.comms))
	for _, c := range a.comms {
		out = append(out, c)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Hash < out[j].Hash })
	return out
}
