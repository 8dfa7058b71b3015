// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// inSpans emits a reading: bytes allocated so far and freed, by span.
func (d *daemon) inSpans(spans map[string]uint64) {
	d.t.Helper()
	p, err := d.ds.NewPacketArray()
	require.NoError(d.t, err)
	for span, bytes := range spans {
		row := p.New()
		f := func(name string) func(uint64) error {
			return func(v uint64) error { return d.fields["allocs/"+name].PutUint64(row, v) }
		}
		require.NoError(d.t, errors.Join(f("process")(7), f("stack_id")(9), d.fields["allocs/pid"].PutUint32(row, 4242),
			d.fields["allocs/kind"].PutString(row, "device"), d.fields["allocs/span_id"].PutString(row, span),
			f("alloc_bytes")(bytes), f("freed_bytes")(bytes), f("alloc_objects")(bytes), f("freed_objects")(bytes)))
		p.Append(row)
	}
	d.emit("allocs", p)
}

// As those that a node sends itself.
func TestProfilesHaveTheirSpans(t *testing.T) {
	d, f, s, now := setup(t, true)
	d.span = "00000000000000a1"
	d.allocated(100)
	c := d.attach(f, now)
	d.allocated(200)
	c.next(now.Add(2 * time.Second))
	require.Equal(t, "00000000000000a1", s.span.String())
}

// A daemon removes the rows of spans that have ended, while their process runs.
func TestCountersOfMemoryStayWhereADaemonRemovesRowsOfSpans(t *testing.T) {
	d, f, _, now := setup(t, true)
	d.info.Annotations = map[string]string{ig.AnnotationInstance: "1"}
	reader := f.cfg.Store.NewReader()
	allocated := func() (sum int64) {
		for _, s := range reader.Read().Samples {
			sum += s.AllocBytes
		}
		return sum
	}
	next := func(c *connection, spans map[string]uint64) {
		d.inSpans(spans)
		c.next(now)
	}
	const first, second = "00000000000000a1", "00000000000000a2"
	d.inSpans(map[string]uint64{first: 5, second: 1000})
	c := d.attach(f, now)
	require.EqualValues(t, 1005, allocated())
	for range 30 {
		next(c, map[string]uint64{first: 6})
		require.EqualValues(t, 1006, allocated())
	}

	f.Disconnected(now)
	f.Hide()
	require.Zero(t, allocated())
	c = d.attach(f, now)
	require.EqualValues(t, 1006, allocated(), "the gadget has run on")

	next(c, nil)
	require.EqualValues(t, 1006, allocated(), "the process has ended: its last values")
	require.Zero(t, allocated())

	d.info.Annotations[ig.AnnotationInstance] = "2"
	d.sent = nil
	d.inSpans(map[string]uint64{second: 3})
	d.attach(f, now)
	require.EqualValues(t, 3, allocated(), "another run of the gadget begins at zero")
}
