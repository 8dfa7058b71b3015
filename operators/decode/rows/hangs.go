// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"strconv"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Hangs reads the events of `hangs`, the verdicts of operators/judge/ranks.
type Hangs struct {
	processFields
	event, reason, text, communicator, name, size, operation, seq  datasource.FieldAccessor
	rank, ranks, waiting, unseen, state, wchan, stack, waited, ras datasource.FieldAccessor
	user                                                           datasource.FieldAccessor
}

// BindHangs finds the fields of the data source `hangs`.
func BindHangs(ds datasource.DataSource) (*Hangs, error) {
	process, err := bindProcessAlone(ds)
	return &Hangs{
		processFields: process,
		event:         ds.GetField("event"), reason: ds.GetField("reason"), text: ds.GetField("text"),
		communicator: ds.GetField("communicator"), name: ds.GetField("name"), size: ds.GetField("size"),
		operation: ds.GetField("operation"), seq: ds.GetField("seq"), rank: ds.GetField("rank"), ranks: ds.GetField("ranks"),
		waiting: ds.GetField("waiting"), unseen: ds.GetField("unseen"), state: ds.GetField("state"), wchan: ds.GetField("wchan"),
		stack: ds.GetField("stack"), user: ds.GetField("user_line"), waited: ds.GetField("waited_ns"), ras: ds.GetField("ras"),
	}, err
}

// Read returns one verdict, reported now.
func (f *Hangs) Read(d datasource.Data, now time.Time) profile.Hang {
	h := profile.Hang{
		Event: text(f.event, d), Time: now, Reason: text(f.reason, d), Text: text(f.text, d),
		Communicator: text(f.communicator, d), Name: text(f.name, d), Size: value(f.size, d),
		Operation: text(f.operation, d), Seq: value(f.seq, d),
		Ranks: numbersOf(text(f.ranks, d)), Waiting: numbersOf(text(f.waiting, d)), Unseen: numbersOf(text(f.unseen, d)),
		Process: f.Process(d), Rank: -1, State: text(f.state, d), Wchan: text(f.wchan, d), Waited: time.Duration(value(f.waited, d)),
		RAS: text(f.ras, d),
	}
	if len(h.Ranks) > 0 {
		h.Rank = h.Ranks[0]
	}
	if s := text(f.stack, d); s != "" {
		h.Stack = stack.ParseFolded(s)
		h.Stack.MarkInside(text(f.user, d))
	}
	return h
}

// numbersOf reads "0 2 7".
func numbersOf(text string) (all []int64) {
	for _, word := range strings.Fields(text) {
		if n, err := strconv.ParseInt(word, 10, 32); err == nil {
			all = append(all, n)
		}
	}
	return all
}
