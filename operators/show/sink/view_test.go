// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// terminal presses its keys when it is first read, and keeps what is drawn.
type terminal struct {
	keys      string
	elsewhere bool // nobody sees it
	drawn     []string
	reads     int
	restored  int
}

func (c *terminal) IsInteractive() bool { return !c.elsewhere }
func (c *terminal) Size() (int, int)    { return 120, 24 }
func (c *terminal) Restore()            { c.restored++ }
func (c *terminal) Read(on func(byte)) {
	c.reads++
	for _, key := range []byte(c.keys) {
		on(key)
	}
}

func (c *terminal) Write(b []byte) (int, error) {
	c.drawn = append(c.drawn, string(b))
	return len(b), nil
}

// intervals of a process that keeps 26 MiB each time, on one of two lines.
func growing() [][]row {
	var all [][]row
	for n := range uint64(6) {
		all = append(all, []row{{1, 11, 26 << 20 * (n + 1), 0, 0}, {1, 22, 9 << 20 * (n + 1), 9 << 20 * (n + 1), 0}})
	}
	return all
}

func TestTheTerminalShowsWhatHasChangedSinceTheMark(t *testing.T) {
	c := &terminal{keys: "dm"}
	g := &gadget{intervals: growing(), console: c}
	require.NoError(t, g.run(t, nil))
	require.Equal(t, 1, c.reads)
	require.Positive(t, c.restored)
	require.Empty(t, g.seen, "the gadget's own table has no rows meanwhile")

	// At once, then after each interval: the mark is of the second one after the key.
	require.Len(t, c.drawn, 1+6)
	for _, text := range c.drawn[:2] {
		require.Equal(t, clear+"No mark is set yet: set one to see the growth since then.\n"+
			"keys: m sets a mark (0 so far), d shows all memory again, q ends\n", text)
	}
	require.Regexp(t, `^\x1b\[H\x1b\[2JSince mark 1 at \d\d:\d\d:\d\d, \ds ago\. GREW: allocated and kept\. FREED: freed\.\n`, c.drawn[2])
	require.NotContains(t, c.drawn[2], "Model.load")
	last := c.drawn[6]
	require.Regexp(t, `\n +\+104 MiB +0 B +52\.0 MiB +156 MiB +\+0 +0 +device Model\.load \(m\.py:7\)\n`, last)
	require.Regexp(t, `\n +0 B +36\.0 MiB +0 B +0 B +\+0 +0 +device </script> \(m\.py:7\)\n`, last)
	require.NotContains(t, last, "keys:", "a table that stays has none")
}

func TestWithoutAMarkTheTableIsTheGadgets(t *testing.T) {
	c := &terminal{keys: "ddx"}
	g := &gadget{intervals: growing(), console: c}
	require.NoError(t, g.run(t, nil))
	require.Len(t, g.seen, 12)
	require.Len(t, c.drawn, 1+6)
	require.Equal(t, "keys: m sets a mark (0 so far), d shows what has changed since the last, q ends\n", c.drawn[1])
	require.Empty(t, c.drawn[6])
}

func TestWhereNobodySeesTheTableNothingIsRead(t *testing.T) {
	c := &terminal{keys: "dm", elsewhere: true}
	g := &gadget{intervals: growing(), console: c}
	require.NoError(t, g.run(t, nil))
	require.Len(t, g.seen, 12)
	require.Zero(t, c.reads)
	require.Zero(t, c.restored)
	require.Empty(t, strings.Join(c.drawn, ""))
}

func TestKeysAreReadWhereThereIsATable(t *testing.T) {
	for output, want := range map[string]bool{
		"columns": true, "pools:none,allocs:columns": true, "columns,pools:none": true, "none,allocs:columns": true,
		"attachments:none": true, "": false, "json": false, "allocs:json,pools:columns": false, "columns,allocs:none": false, "yaml,pools:columns": false,
	} {
		require.Equal(t, want, isTable(output, "allocs"), output)
	}
}
