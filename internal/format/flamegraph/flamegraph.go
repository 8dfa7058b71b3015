// SPDX-License-Identifier: Apache-2.0

// Package flamegraph writes a profile, or two to compare, as one HTML file that
// needs nothing else: no network, no server, no library. Open it, mail it,
// attach it to a ticket.
package flamegraph

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/document"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

var (
	//go:embed page.html
	page string
	//go:embed model.js
	model string
	//go:embed graph.js
	graph string
	//go:embed page.js
	controls string
)

// Page has the contents of a flame graph's page.
type Page struct {
	// Title heads the page: what was recorded, and where.
	Title string
	// Profile is the snapshot; Base, if not nil, is an earlier one of the
	// same subject that it is compared with.
	Profile, Base *profile.Profile
}

// data is read by the script; model.js is its other end.
type data struct {
	Title string `json:"title"`
	// Types are in the order of a row's values.
	Types []string `json:"types"`
	// Strings are shared; others are indexes into them.
	Strings []string `json:"strings"`
	// Frames are (kind, function, file, line) one after the other.
	Frames []int `json:"frames"`
	// Nodes are (how many places before it its parent is, frame) one after
	// the other, from node 1; node 0 is the root. Most parents are the node
	// just before, so this is short.
	Nodes     []int      `json:"nodes"`
	Processes []string   `json:"processes"`
	Profiles  []snapshot `json:"profiles"`
}

type snapshot struct {
	Time string `json:"time"`
	// Rows are (leaf node, process, value of each type) one after the other.
	Rows []int64 `json:"rows"`
}

// Write writes the page. The same input gives the same bytes.
func Write(w io.Writer, p Page) error {
	if p.Base != nil && p.Base.Subject != p.Profile.Subject {
		return errors.New("the base is a profile of another kind")
	}
	err := document.Write(w, document.Page{
		Title: p.Title, Body: page, Scripts: []string{model, graph, controls}, Data: encode(p),
	})
	if err != nil {
		return fmt.Errorf("write flame graph: %w", err)
	}
	return nil
}

func encode(p Page) data {
	snapshots := []*profile.Profile{p.Profile}
	if p.Base != nil {
		snapshots = append(snapshots, p.Base)
	}
	// One tree for both, so that the same stack is the same node.
	all := &profile.Profile{}
	for _, s := range snapshots {
		all.Rows = append(all.Rows, s.Rows...)
	}
	tree := all.Tree()

	// Never null: the script counts on arrays.
	d := data{Title: p.Title, Strings: []string{}, Frames: []int{}, Nodes: []int{}, Processes: []string{}}
	columns := p.Profile.Types()
	for _, t := range columns {
		d.Types = append(d.Types, t.String())
	}
	texts := interner{index: map[string]int{}, list: []string{}}
	for _, f := range tree.Frames {
		d.Frames = append(d.Frames, int(f.Kind), texts.number(f.Function), texts.number(f.File), int(f.Line))
	}
	for i, n := range tree.Nodes[1:] {
		d.Nodes = append(d.Nodes, i+1-int(n.Parent), int(n.Frame))
	}
	d.Strings = texts.list

	processes := interner{index: map[string]int{}, list: []string{}}
	leaves := tree.Leaf
	for _, s := range snapshots {
		out := snapshot{Rows: make([]int64, 0, len(s.Rows)*(2+len(columns)))}
		if !s.Time.IsZero() {
			out.Time = s.Time.UTC().Format(time.RFC3339)
		}
		for i, r := range s.Rows {
			out.Rows = append(out.Rows, int64(leaves[i]), int64(processes.number(processName(r.Process))))
			for _, t := range columns {
				out.Rows = append(out.Rows, r.Get(t))
			}
		}
		leaves = leaves[len(s.Rows):]
		d.Profiles = append(d.Profiles, out)
	}
	d.Processes = processes.list
	return d
}

func processName(p profile.Process) string {
	name := fmt.Sprintf("%s (%d)", p.Comm, p.PID)
	var place []string
	for _, part := range []string{p.Namespace, p.Pod, p.Container} {
		if part != "" {
			place = append(place, part)
		}
	}
	if len(place) > 0 {
		name = strings.Join(place, "/") + " " + name
	}
	return name
}

// interner numbers strings in the order of their first use.
type interner struct {
	index map[string]int
	list  []string
}

func (n *interner) number(s string) int {
	i, ok := n.index[s]
	if !ok {
		i = len(n.list)
		n.index[s] = i
		n.list = append(n.list, s)
	}
	return i
}
