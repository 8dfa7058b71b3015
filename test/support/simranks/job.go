// SPDX-License-Identifier: Apache-2.0

// Package simranks simulates jobs of many ranks that call NCCL, with known faults, for
// tests of those who judge them: internal/collective directly, and the rules for
// Prometheus by metrics.
//
// Time is simulated. A rank's host runs a list of actions: it computes, enqueues
// operations, which returns at once, and waits for its stream now and then. Its stream
// executes the operations in order, and one is done when the streams of all participants
// have reached it, or those from which a broadcast comes. So a missing rank blocks exactly those that would really wait for it.
package simranks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// Forever is a wait that does not end.
const Forever = 1000 * time.Hour

// Group is a communicator: its ranks are processes of the job by number.
type Group struct {
	collective.Communicator
	Members []int
}

// rank of a process in the group; -1.
func (g *Group) rank(process int) int { return slices.Index(g.Members, process) }

type verb uint8

const (
	compute verb = iota
	launch       // span of work for the stream; the host goes on at once
	call
	wait // for the stream
	die  // state from then on, for span; then go on
)

// action of a host.
type action struct {
	verb  verb
	span  time.Duration
	state collective.State // of die
	group *Group
	op    collective.Operation
	// stuck: no GPU ever does it.
	stuck bool
}

// record is an operation of a process, as it happened.
type record struct {
	collective.Operation
	group *Group
	done  collective.Time // 0: never
	stuck bool
	// launched is when the host launched the work that the stream does before it, and work how long that takes.
	launched collective.Time
	work     time.Duration
}

// arrives is when a stream that has done the previous operation comes to this one.
func (r *record) arrives(previous collective.Time) collective.Time {
	return max(r.Enter, max(r.launched, previous)+collective.Time(r.work))
}

// interval of a process.
type interval struct {
	from, to collective.Time
	state    collective.State
	// issued before it, of a wait
	issued int
}

// process is one rank of the job.
type process struct {
	number int
	// next makes its actions, a step at a time.
	next    func() []action
	actions []action
	host    collective.Time
	records []record
	head    int // first record that is not done
	waits   []interval
	states  []interval
	ended   bool // it no longer issues anything
	counts  map[countKey]uint64
	digests map[*Group]*digests
	kept    map[*Group][]kept // computed on first use
	// launched and work are those of the next operation.
	launched collective.Time
	work     time.Duration
}

type countKey struct {
	group *Group
	kind  collective.Kind // 0: collectives
	peer  int
}

// opKey finds the other ends of an operation.
type opKey struct {
	hash uint64
	seq  uint64
	from int // of a send; -1
	to   int
}

// Job is one run.
type Job struct {
	Groups    []*Group
	processes []*process
	// entered has the ranks that have issued an operation.
	entered map[opKey]map[int]*record
	random  *rand.Rand
	// hasWatchdog: each process queries what it has issued, so that it is known when each operation is done.
	hasWatchdog bool
}

const begin = collective.Time(time.Hour) // so that zero is never a time

func newJob(random *rand.Rand, size int) *Job {
	j := &Job{entered: map[opKey]map[int]*record{}, random: random}
	for n := range size {
		j.processes = append(j.processes, &process{number: n, host: begin, counts: map[countKey]uint64{}, digests: map[*Group]*digests{}, kept: map[*Group][]kept{}})
	}
	return j
}

// group makes a communicator.
func (j *Job) group(name string, members ...int) *Group {
	g := &Group{collective.Communicator{Hash: j.random.Uint64() | 1<<63, Name: name, Size: len(members)}, members}
	j.Groups = append(j.Groups, g)
	return g
}

// run lets all hosts come to the time.
func (j *Job) run(until collective.Time) {
	for progress := true; progress; {
		progress = false
		for _, p := range j.processes {
			for p.host < until && !p.ended && j.step(p) {
				progress = true
			}
		}
		for _, p := range j.processes {
			for j.resolve(p) {
				progress = true
			}
		}
	}
}

// step executes one action; false: it must wait for others.
func (j *Job) step(p *process) bool {
	if len(p.actions) == 0 {
		p.actions = p.next()
		if len(p.actions) == 0 {
			p.ended = true
			return false
		}
	}
	a := p.actions[0]
	switch a.verb {
	case compute:
		p.host += collective.Time(a.span)
	case launch:
		if p.work == 0 {
			p.launched = p.host
		}
		p.work += a.span
	case call:
		j.issue(p, a)
	case wait:
		n := len(p.records)
		if p.head < n {
			// A process is shown as waiting from the moment on that it does.
			if k := len(p.waits); k == 0 || p.waits[k-1].to != 0 {
				p.waits = append(p.waits, interval{from: p.host, issued: n})
			}
			return false
		}
		from := p.host
		if n > 0 {
			p.host = max(p.host, p.records[n-1].done)
		}
		if k := len(p.waits); k > 0 && p.waits[k-1].to == 0 {
			p.waits[k-1].to = p.host
		} else {
			p.waits = append(p.waits, interval{from: from, to: p.host, issued: n})
		}
		for i := n - 1; i >= 0 && p.records[i].DoneBy == 0; i-- {
			p.records[i].DoneBy = p.host
		}
		p.host += collective.Time(20 * time.Microsecond)
	case die:
		p.states = append(p.states, interval{from: p.host, to: p.host + collective.Time(a.span), state: a.state})
		p.host += collective.Time(a.span)
	}
	p.actions = p.actions[1:]
	return true
}

func (j *Job) issue(p *process, a action) {
	o, key := a.op, countKey{a.group, 0, 0}
	me := a.group.rank(p.number)
	id := opKey{hash: a.group.Hash, from: -1, to: -1}
	if o.Kind.IsPeer() {
		key = countKey{a.group, o.Kind, o.Peer}
		id.from, id.to = me, o.Peer
		if o.Kind == collective.Recv {
			id.from, id.to = o.Peer, me
		}
	}
	p.counts[key]++
	o.Seq = p.counts[key]
	o.Enter = p.host
	p.host += collective.Time(5 * time.Microsecond)
	o.Return = p.host
	o.Line = fmt.Sprintf("train.py:%d step", 40+int(o.Kind))
	p.records = append(p.records, record{Operation: o, group: a.group, stuck: a.stuck, launched: p.launched, work: p.work})
	p.work = 0
	if !o.Kind.IsPeer() {
		if p.digests[a.group] == nil {
			p.digests[a.group] = &digests{}
		}
		p.digests[a.group].add(o)
	}
	id.seq = o.Seq
	if j.entered[id] == nil {
		j.entered[id] = map[int]*record{}
	}
	j.entered[id][p.number] = nil // by index, since records move
}

// resolve finds when the first operation of the process that is not done is done.
func (j *Job) resolve(p *process) bool {
	if p.head == len(p.records) {
		return false
	}
	r := &p.records[p.head]
	if r.Kind == collective.Broadcast {
		return j.resolveBroadcast(p, r)
	}
	want := len(r.group.Members)
	members := r.group.Members
	if r.Kind.IsPeer() {
		want = 2
		members = []int{p.number, r.group.Members[r.Peer]}
	}
	ready, at, signature := 0, collective.Time(0), r.Signature()
	var heads []*record
	for _, n := range members {
		other := j.processes[n]
		if other.head == len(other.records) {
			return false
		}
		h := &other.records[other.head]
		if h.group != r.group || h.Seq != r.Seq || h.Kind.IsPeer() != r.Kind.IsPeer() || h.stuck || h.Signature() != signature {
			return false
		}
		if r.Kind.IsPeer() && n != p.number && (h.Kind == r.Kind || r.group.Members[h.Peer] != p.number) {
			return false
		}
		ready++
		previous := collective.Time(0)
		if other.head > 0 {
			previous = other.records[other.head-1].done
		}
		at = max(at, h.arrives(previous), previous)
		heads = append(heads, h)
	}
	if ready < want {
		return false
	}
	at += collective.Time(200*time.Microsecond + time.Duration(j.random.Int64N(int64(300*time.Microsecond))))
	for i, h := range heads {
		h.done = at
		j.processes[members[i]].head++
	}
	return true
}

// resolveBroadcast is resolve for a small broadcast: each rank passes the data on to the next, from the root on, and is done as
// soon as it is in the next one's buffer, whether that has come or not.
func (j *Job) resolveBroadcast(p *process, r *record) bool {
	members := r.group.Members
	at := r.Enter
	for n := r.Peer; ; n = (n + 1) % len(members) {
		other := j.processes[members[n]]
		i := min(other.head, len(other.records)-1)
		for i >= 0 && (other.records[i].group != r.group || other.records[i].Kind.IsPeer() || other.records[i].Seq > r.Seq) {
			i--
		}
		if i < 0 || other.records[i].Seq != r.Seq {
			return false // it has not come, or does something else yet
		}
		o := &other.records[i]
		if o.stuck || o.Signature() != r.Signature() {
			return false
		}
		previous := collective.Time(0)
		if i > 0 {
			previous = other.records[i-1].done
		}
		at = max(at, o.arrives(previous), previous)
		if other == p {
			break
		}
	}
	r.done = at + collective.Time(100*time.Microsecond+time.Duration(j.random.Int64N(int64(100*time.Microsecond))))
	p.head++
	return true
}
