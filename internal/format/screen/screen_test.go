// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const kv = "GPUModelRunner._allocate_kv_cache_tensors (model.py:141)"

func TestTheFileAndLineOfAFrameStayWhole(t *testing.T) {
	require.Equal(t, kv, ShortenFrame(kv, 80))
	for width := Width(kv); width >= len("(model.py:141)"); width-- {
		short := ShortenFrame(kv, width)
		require.LessOrEqual(t, Width(short), width)
		require.True(t, strings.HasSuffix(short, "(model.py:141)"), "%d: %s", width, short)
	}
	require.Equal(t, "GPUModelRunner._all…_cache_tensors (model.py:141)", ShortenFrame(kv, 49))
	require.Equal(t, "G…s (model.py:141)", ShortenFrame(kv, 18))
	require.Equal(t, "(model.py:141)", ShortenFrame(kv, 17))
	require.Equal(t, "…py:141)", ShortenFrame(kv, 8))
	require.Equal(t, "void at::nat…>(float*)", ShortenFrame("void at::native::elementwise_kernel<float>(float*)", 22))
}

func TestAStackLosesItsRootFirst(t *testing.T) {
	folded := "main (a.py:1); run (a.py:2); " + kv
	require.Equal(t, folded, ShortenStack(folded, 200))
	require.Equal(t, "…; run (a.py:2); "+kv, ShortenStack(folded, 75))
	require.Equal(t, "…; "+kv, ShortenStack(folded, 60))
	require.Equal(t, "…; GPUModelRun…_tensors (model.py:141)", ShortenStack(folded, 38))
}

func FuzzShortenFrameFits(f *testing.F) {
	f.Add(kv, 20)
	f.Add("你好世界你好世界 (模型.py:1)", 12)
	f.Fuzz(func(t *testing.T, label string, width int) {
		if !utf8.ValidString(label) || width < 1 || width > 300 {
			t.Skip()
		}
		label = Clean(label)
		require.LessOrEqual(t, Width(ShortenFrame(label, width)), width)
		require.LessOrEqual(t, Width(ShortenStack(label, width)), width)
		for _, line := range Wrap(label, max(width, 12), 2) {
			require.LessOrEqual(t, Width(line), max(width, 12))
		}
	})
}

func TestNothingThatIsShownDrivesATerminal(t *testing.T) {
	require.Equal(t, "a\ufffd[31mb\ufffd\ufffd\ufffd", Clean("a\033[31mb\u009b\n\u202e"))
	require.Equal(t, "a\n\tb\ufffd[2J\ufffd", CleanLines("a\n\tb\033[2J\r"))
}

func sample() Table {
	return Table{
		Sorted: 0,
		Columns: []Column{
			{Title: "IN-USE", Right: true}, {Title: "SHARE", Right: true, Drop: 3}, {Title: "PEAK", Right: true, Drop: 2},
			{Title: "PROCESS", Drop: 1}, {Title: "LINE", Shorten: ShortenFrame, Min: 40},
		},
		Rows: []Row{
			{Cells: []string{"4.88 GiB", "97.6 %", "4.88 GiB", "python3[4711]", kv}},
			{Cells: []string{"120 MiB", "2.4 %", "121 MiB", "python3[4711]", "load (w.py:9)"}},
		},
		Totals: []Row{{Cells: []string{"5.00 GiB", "", "", "", "total"}, Style: Bold}},
	}
}

func text(lines []Line) string {
	all := make([]string, len(lines))
	for n, l := range lines {
		all[n] = l.String()
	}
	return strings.Join(all, "\n")
}

func TestColumnsAreDroppedInTheirOrderBeforeTheLineIsCut(t *testing.T) {
	require.Equal(t, strings.Trim(`
  IN-USE   SHARE      PEAK  PROCESS        LINE
4.88 GiB  97.6 %  4.88 GiB  python3[4711]  `+kv+`
 120 MiB   2.4 %   121 MiB  python3[4711]  load (w.py:9)
5.00 GiB                                   total`, "\n"), text(sample().Render(120, 0)))
	require.Equal(t, strings.Trim(`
  IN-USE      PEAK  PROCESS        LINE
4.88 GiB  4.88 GiB  python3[4711]  GPUModelRunner._a…ache_tensors (model.py:141)
 120 MiB   121 MiB  python3[4711]  load (w.py:9)
5.00 GiB                           total`, "\n"), text(sample().Render(80, 0)))
	require.Equal(t, strings.Trim(`
  IN-USE  LINE
4.88 GiB  GPUModelRunner…he_tensors (model.py:141)
 120 MiB  load (w.py:9)
5.00 GiB  total`, "\n"), text(sample().Render(50, 0)))
	for width := 1; width < 130; width++ {
		for _, l := range sample().Render(width, 0) {
			require.LessOrEqual(t, l.Width(), width)
		}
	}
}

func TestAPageIsAsLargeAsTheScreen(t *testing.T) {
	p := Page{Status: Text(Bold, "attached"), Keys: Text(Dim, "q quit"), Head: 1, Foot: 1,
		Messages: []Message{{"rank 1 of 4 is stopped, before Broadcast 161 of communicator training, at Rank.load (train.py:41)", Red}}}
	for range 40 {
		p.Body = append(p.Body, Text(Plain, "row"))
	}
	p.Body[0], p.Body[39] = Text(Bold, "head"), Text(Bold, "total")
	for _, size := range [][2]int{{80, 24}, {200, 50}, {20, 5}, {1, 1}, {40, 3}} {
		lines := p.Render(size[0], size[1])
		require.Len(t, lines, size[1])
		for _, l := range lines {
			require.LessOrEqual(t, l.Width(), size[0])
		}
	}
	require.Equal(t, strings.Trim(`
attached
head
row
… 37 more
total
─── messages 
rank 1 of 4 is stopped, before Broadcast
  161 of communicator training, at
  Rank.load (train.py:41)
q quit`, "\n"), text(p.Render(40, 10)))
}

func TestColourIsLeftOutOnDemand(t *testing.T) {
	l := Line{{"a", Red}, {"b", Plain}}
	require.Equal(t, "ab", l.Paint(false))
	require.Equal(t, "\033[1;31ma\033[0mb", l.Paint(true))
}
