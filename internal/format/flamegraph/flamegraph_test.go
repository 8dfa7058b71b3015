// SPDX-License-Identifier: Apache-2.0

package flamegraph

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

var (
	update = flag.Bool("update", false, "rewrite the golden files")
	// To view one: go test ./internal/format/flamegraph -args -write DIR
	write = flag.String("write", "", "folder to write small.html, diff.html and large.html to")
)

func render(t *testing.T, p Page) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, p))
	return b.String()
}

func pages() map[string]Page {
	return map[string]Page{
		"small": {Title: "GPU memory", Profile: fixture.Small()},
		"diff":  {Title: "GPU memory", Profile: fixture.Small(), Base: fixture.Earlier()},
	}
}

func TestData(t *testing.T) {
	for name, p := range pages() {
		got, err := json.MarshalIndent(encode(p), "", " ")
		require.NoError(t, err)
		// One line per array of numbers is what a person can compare.
		numbers := regexp.MustCompile(`\[\n\s+-?\d[\d\s,-]*\]`)
		text := numbers.ReplaceAllStringFunc(string(got), func(s string) string {
			return strings.Join(strings.Fields(s), " ")
		}) + "\n"

		path := "testdata/" + name + ".json"
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), text)
	}
}

// TestKindsOfFramesStayInOrder: native frames between two runs of Python, a kernel on top,
// unknown frames; self is of the innermost alone, and no total is less than a self.
func TestKindsOfFramesStayInOrder(t *testing.T) {
	p := fixture.Kinds()
	var want stack.Stack
	for _, f := range p.Rows[0].Stack {
		want = append(want, f.Identity())
	}
	require.Equal(t, want, decode(t, encode(Page{Profile: p}), 0).Rows[0].Stack)
	selves := int64(0)
	for _, f := range p.Frames(profile.AllocSpace) {
		require.GreaterOrEqual(t, f.Total, f.Self)
		selves += f.Self
	}
	require.Equal(t, p.Sum().Get(profile.AllocSpace), selves)
	for k := stack.KindUnknown; k <= stack.KindKernel; k++ {
		require.Contains(t, model, strings.ToUpper(k.String())+" = "+strconv.Itoa(int(k)), "model.js names the kinds by their numbers")
	}
}

// TestEachTypeHasAName: without one, the page has none to begin with, and stays blank.
func TestEachTypeHasAName(t *testing.T) {
	all := slices.Concat(profile.PeakTypes(), profile.DeviceTypes(), profile.TensorTypes(), profile.WasteTypes())
	for _, s := range profile.Subjects() {
		all = append(all, s.Types()...)
	}
	for _, of := range all {
		require.Contains(t, model, `{ name: "`+of.String()+`", label: "`)
		require.Contains(t, controls, of.String()+`: "`)
	}
}

// decode is the script's reading of the data, in Go.
func decode(t *testing.T, d data, snapshot int) *profile.Profile {
	t.Helper()
	parent, frame := []int{-1}, []int{-1}
	for i := 0; i < len(d.Nodes); i += 2 {
		parent = append(parent, len(parent)-d.Nodes[i])
		frame = append(frame, d.Nodes[i+1])
	}
	rows := d.Profiles[snapshot].Rows
	var out []profile.Row
	for ; len(rows) > 0; rows = rows[2+len(d.Types):] {
		var r profile.Row
		for n := int(rows[0]); n != 0; n = parent[n] {
			f := d.Frames[4*frame[n]:]
			r.Stack = append(r.Stack, stack.Frame{Kind: stack.Kind(f[0]), Function: d.Strings[f[1]], File: d.Strings[f[2]], Line: uint32(f[3])})
		}
		r.AllocObjects, r.AllocBytes, r.InuseObjects, r.InuseBytes = rows[2], rows[3], rows[4], rows[5]
		out = append(out, r)
	}
	return &profile.Profile{Rows: out}
}

func TestDataHoldsTheProfile(t *testing.T) {
	large, before := fixture.Large(300), fixture.Large(200)
	d := encode(Page{Profile: large, Base: before})
	for i, want := range []*profile.Profile{large, before} {
		got := decode(t, d, i)
		require.Len(t, got.Rows, len(want.Rows))
		for _, typ := range profile.Types() {
			require.Equal(t, want.Sum().Get(typ), got.Sum().Get(typ))
		}
		for j, r := range want.Rows {
			require.Equal(t, r.Stack.Folded(), got.Rows[j].Stack.Folded())
		}
	}
}

func TestNamesStayText(t *testing.T) {
	page := render(t, Page{Title: fixture.Hostile, Profile: fixture.Small()})
	require.NotContains(t, page, "<img")
	require.Equal(t, 2, strings.Count(page, "</script>"), "ours: the data and the script")
	require.Contains(t, page, `\u003c/script\u003e\u003cimg src=x`)
}

func TestPageNeedsNothingElse(t *testing.T) {
	page := render(t, Page{Title: "t", Profile: fixture.Small()})
	for _, word := range []string{"http://", "https://", "src=\"", "href=", "@import", "url(", "innerHTML", "eval("} {
		require.NotContains(t, page, word)
	}
	require.NotContains(t, page, "{{")
}

func TestSameProfileGivesSameBytes(t *testing.T) {
	for _, p := range pages() {
		require.Equal(t, render(t, p), render(t, p))
	}
}

func TestEmptyProfile(t *testing.T) {
	require.Contains(t, render(t, Page{Title: "t", Profile: profile.New(fixture.Small().Time, nil)}), `"strings":[],"frames":[],"nodes":[],"processes":[]`)
}

// A browser is the only judge of whether the script runs.
func TestPageRunsInABrowser(t *testing.T) {
	var browser string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no chromium or google-chrome in PATH")
	}
	dir := t.TempDir()
	dom := func(p Page, fragment string) string {
		path := filepath.Join(dir, "page.html")
		require.NoError(t, os.WriteFile(path, []byte(render(t, p)), 0o600))
		cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
			"--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--user-data-dir="+t.TempDir(), "--dump-dom", "file://"+path+"#"+fragment)
		out, err := cmd.Output()
		require.NoError(t, err)
		// What the script made, without the script.
		made, _, ok := strings.Cut(string(out), `<script type="application/json"`)
		require.True(t, ok)
		return made
	}

	small := dom(pages()["small"], "")
	require.Contains(t, small, "<strong>1.29 GiB</strong>")
	require.Contains(t, small, `&lt;/script&gt;&lt;img src=x onerror="document.title='owned'"&gt;`)
	require.NotContains(t, small, "<img")
	require.Contains(t, small, "<title>GPU memory</title>")

	zoomed := dom(pages()["small"], "zoom=11.12&type=alloc_objects&q=Sampler%7CHost")
	require.Contains(t, zoomed, "<strong>8,589</strong>")
	require.Contains(t, zoomed, "<button>EngineCore.step</button>")
	require.Contains(t, zoomed, "8,196 matched (95.4 %)")

	diff := dom(pages()["diff"], "")
	require.Contains(t, diff, "+594.0 MiB since 30 Sept 2026, 11:59:00 UTC")
	require.Contains(t, diff, `<td class="grew" title="704,643,072">+672.0 MiB</td>`)
	require.Contains(t, dom(Page{Title: "t", Profile: profile.New(fixture.Small().Time, nil)}, ""), "<strong>0 B</strong>")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteErrorIsReported(t *testing.T) {
	require.ErrorContains(t, Write(full{}, Page{Profile: fixture.Small()}), "write flame graph: no space left")
}

func TestWritePages(t *testing.T) {
	if *write == "" {
		t.Skip("no -write folder")
	}
	all := pages()
	all["large"] = Page{Title: "GPU memory of a large program", Profile: fixture.Large(50_000)}
	for name, p := range all {
		require.NoError(t, os.WriteFile(*write+"/"+name+".html", []byte(render(t, p)), 0o644))
	}
}

func BenchmarkWrite50kStacks(b *testing.B) {
	p := Page{Title: "t", Profile: fixture.Large(50_000)}
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		if err := Write(&out, p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(out.Len()), "file-bytes")
}
