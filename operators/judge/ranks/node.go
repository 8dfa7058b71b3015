// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Node is a Joiner's state of one node.
type Node struct {
	joiner *Joiner
	name   string

	// The joiner's lock guards these.
	clock   clock
	isRead  bool            // its communicators were
	fresh   collective.Time // when the newest table was made, in wall time
	heard   collective.Time // when it came; before the first one, when the node was judged first
	rows    map[rankKey]*rank
	threads map[threadKey]threadState
}

// isRemoved reports whether nothing was heard of the node for so long that it is none any more; the lock is held.
func (n *Node) isRemoved(now collective.Time) bool {
	if n.heard == 0 {
		n.heard = now
	}
	return now-n.heard > removed
}

// forget leaves a node out until there is a table of it; the lock is held.
func (n *Node) forget() {
	delete(n.joiner.nodes, n.name)
	*n = Node{joiner: n.joiner, name: n.name, rows: map[rankKey]*rank{}, threads: map[threadKey]threadState{}}
}

// current is the node of that name in the joiner, which may have forgotten this one; the lock is held.
func (n *Node) current() *Node {
	known := n.joiner.nodes[n.name]
	if known == nil {
		known = n
		n.joiner.nodes[n.name] = n
	}
	return known
}

// threadKey is a rank as `collectives` names it.
type threadKey struct {
	process      uint64
	communicator string
	rank         int
}

// threadState is a node's report about a rank's thread, if it has our operators.
type threadState struct {
	state  collective.State
	wchan  string
	stack  []string
	user   string // "": not known
	isLast bool
	seen   collective.Time
}

// Take takes a table that came at a time. The daemon is not trusted to send what it
// announced: who calls it recovers from accessors that panic.
type Take func(all datasource.DataArray, at time.Time) error

// Table binds a data source of nccl_trace; nil for others. communicators and peers are the
// gadget's own; collectives, with what threads do and where they are, is of nodes on which
// our operators run.
func (n *Node) Table(ds datasource.DataSource) (Take, error) {
	if ds.Type() != datasource.TypeArray {
		return nil, nil
	}
	switch ds.Name() {
	case communicators:
		if ds.GetField("ring") == nil {
			return nil, nil
		}
		return n.bindCommunicators(ds)
	case peers:
		return n.bindPeers(ds)
	case Collectives:
		return n.bindThreads(ds)
	}
	return nil, nil
}

func (n *Node) bindCommunicators(ds datasource.DataSource) (Take, error) {
	reader, err := bind(ds)
	if err != nil {
		return nil, err
	}
	text := ds.GetField("stack")
	return func(all datasource.DataArray, at time.Time) error {
		n.joiner.mu.Lock()
		defer n.joiner.mu.Unlock()
		n := n.current()
		now := collective.Time(at.UnixNano())
		rows := make([]row, 0, all.Len())
		newest := collective.Time(0)
		for i := range all.Len() {
			d := all.Get(i)
			r, ok, err := reader.read(d)
			if err != nil {
				return fmt.Errorf("read a communicator: %w", err)
			}
			newest = max(newest, r.At)
			if err := r.checkClock(); err != nil {
				return err
			}
			if !ok {
				continue
			}
			if text != nil {
				folded, _ := text.String(d)
				r.lines = pythonLines(folded)
			}
			rows = append(rows, r)
		}
		n.clock.add(newest, now)
		n.isRead, n.heard = true, now
		if newest == 0 {
			n.fresh = now // without ranks, it has no time of its own
		} else {
			n.fresh = shift(newest, n.clock.toWall())
		}
		if n.joiner.began == 0 {
			n.joiner.began = now
		}
		n.makeRoom(rows)
		for _, r := range rows {
			if err := n.put(r, now); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// ErrClock means that rows have times that no kernel's boot clock has: they are not those of the
// gadget.
var ErrClock = errors.New("impossible time")

const (
	// maxUptime of a machine.
	maxUptime = collective.Time(20 * 365 * 24 * time.Hour)
	// clockSlack is for operations that begin while the row is read.
	clockSlack = collective.Time(10 * time.Second)
)

func (r *row) checkClock() error {
	if r.At < 0 || r.At > maxUptime {
		return fmt.Errorf("%w: read %d s after boot", ErrClock, r.At/1e9)
	}
	for i := range r.Operations {
		if enter := r.Operations[i].Enter; enter < 0 || enter > r.At+clockSlack {
			return fmt.Errorf("%w: an operation began %d s after boot, which was read %d s after boot", ErrClock, enter/1e9, r.At/1e9)
		}
	}
	return nil
}

// pythonLines of a folded stack, innermost first.
func pythonLines(folded string) (all []string) {
	if folded == "" {
		return nil
	}
	for _, f := range stack.ParseFolded(folded) {
		if f.Kind == stack.KindPython {
			all = append(all, f.Label())
		}
	}
	return all
}

func (n *Node) bindPeers(ds datasource.DataSource) (Take, error) {
	reader, err := bindPeers(ds)
	if err != nil {
		return nil, err
	}
	return func(all datasource.DataArray, _ time.Time) error {
		fresh, err := reader.all(all)
		if err != nil {
			return err
		}
		n.joiner.mu.Lock()
		defer n.joiner.mu.Unlock()
		n := n.current()
		for key, progress := range fresh {
			if r := n.rows[key]; r != nil {
				r.peers = progress
			}
		}
		return nil
	}, nil
}

func (n *Node) bindThreads(ds datasource.DataSource) (Take, error) {
	process, communicator, rank := ds.GetField("process"), ds.GetField("communicator"), ds.GetField("rank")
	state, wchan, text, isLast := ds.GetField("state"), ds.GetField("wchan"), ds.GetField("stack"), ds.GetField("last")
	user := ds.GetField("user_line") // older daemons have none
	for _, f := range []datasource.FieldAccessor{process, communicator, rank, state, wchan, text, isLast} {
		if f == nil {
			return nil, fmt.Errorf("%s lacks a field: the node's daemon is older or newer than this program", ds.Name())
		}
	}
	return func(all datasource.DataArray, at time.Time) error {
		n.joiner.mu.Lock()
		defer n.joiner.mu.Unlock()
		n := n.current()
		if len(n.threads)+all.Len() > maxNodeRanks {
			clear(n.threads) // these rows are complete
		}
		for i := range all.Len() {
			d := all.Get(i)
			id, _ := process.Uint64(d)
			name, _ := communicator.String(d)
			number, err := rank.Int32(d)
			if err != nil {
				return fmt.Errorf("read a rank: %w", err)
			}
			key := threadKey{id, name, int(number)}
			if _, known := n.threads[key]; !known && len(n.threads) >= maxNodeRanks {
				return fmt.Errorf("%w: %d", errTooMany, maxNodeRanks)
			}
			t := threadState{seen: collective.Time(at.UnixNano())}
			word, _ := state.String(d)
			t.state = collective.ParseState(word)
			t.wchan, _ = wchan.String(d)
			t.isLast, _ = isLast.Bool(d)
			if user != nil {
				t.user, _ = user.String(d)
			}
			if folded, _ := text.String(d); folded != "" {
				t.stack = strings.Split(folded, "; ")
				slices.Reverse(t.stack)
			}
			n.threads[key] = t
		}
		return nil
	}, nil
}

// clock returns the wall time of a node's boot clock: the least time from the reading of a
// row to its arrival is nearest to the truth. The minute before is kept, so that a clock
// that was set is followed.
type clock struct {
	current, previous collective.Time
	began             collective.Time // of the current window
}

// clockWindow is how long one least value holds.
const clockWindow = collective.Time(time.Minute)

func (c *clock) add(boot, wall collective.Time) {
	if boot == 0 {
		return
	}
	if c.began == 0 || wall-c.began > clockWindow || wall < c.began {
		c.previous, c.current, c.began = c.current, 0, wall
	}
	if c.current == 0 || wall-boot < c.current {
		c.current = wall - boot
	}
}

func (c *clock) toWall() collective.Time {
	if c.previous != 0 && c.previous < c.current {
		return c.previous
	}
	return c.current
}
