// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/weave"
)

// To view the page: go test ./internal/timeline/page -args -write FILE
var write = flag.String("write", "", "file to write a made-up decode loop to")

var meta = Meta{Title: "What the GPU was asked for", WallOffset: 1_763_000_000 * time.Second, Lost: map[string]uint64{"event_lost": 3, "none": 0}}

// decode is a made-up decode loop.
func decode(steps int) *Page {
	p := New()
	w := weave.New(p)
	by := weave.Thread{Process: 1, PID: 4242, TID: 4242, Comm: "python3"}
	rng := rand.New(rand.NewPCG(1, 2))
	stack := func(id uint64, names ...string) *weave.Stack {
		s := &weave.Stack{ID: id}
		for n, name := range names {
			s.Python = append(s.Python, weave.Frame{Name: name, Place: fmt.Sprintf("decode.py:%d", 10+7*n), Key: name})
		}
		return s
	}
	load := stack(1, "main", "Engine.run", "Engine.step", "Batch.upload")
	forward := stack(2, "main", "Engine.run", "Engine.step", "Model.forward", "Layer.forward")
	sample := stack(3, "main", "Engine.run", "Engine.step", "Sampler.read")
	at := uint64(5_000_000_000_000)
	call := func(c weave.Call, ns uint64) {
		c.Thread, c.Start = by, at
		at += ns + rng.Uint64N(ns/4+1)
		c.End = at
		w.Call(&c)
		at += 2000 + rng.Uint64N(4000)
	}
	for range steps {
		call(weave.Call{Function: "cuMemcpyHtoDAsync_v2", Kind: weave.Copy, Stream: 0x7f20, Bytes: 4 << 20, Direction: "HtoD", Stack: load}, 180_000)
		for layer := range 16 {
			call(weave.Call{Function: "cuLaunchKernel", Kind: weave.Launch, Kernel: []string{"rms_norm", "gemm_bf16", "flash_attention"}[layer%3], Stream: 0x7f20, Grid: [3]uint32{64, 1, 1}, Block: [3]uint32{256, 1, 1}, Stack: forward}, 9000)
		}
		call(weave.Call{Function: "cuMemcpyDtoHAsync_v2", Kind: weave.Copy, Stream: 0x7f20, Bytes: 1 << 16, Direction: "DtoH", Stack: sample}, 12_000)
		begin := at
		call(weave.Call{Function: "cuStreamSynchronize", Kind: weave.Wait, Stream: 0x7f20, Stack: sample}, 900_000)
		w.Host(&weave.Host{Thread: by, Kind: weave.Slept, Start: begin + 9000, End: at - 9000, Name: "sleeping", Reason: "poll_schedule_timeout"})
		w.Host(&weave.Host{Thread: by, Kind: weave.Ran, Start: begin - 300_000, End: begin + 9000, CPU: 3})
		w.Host(&weave.Host{Thread: by, Kind: weave.Syscall, Start: begin + 2000, End: at - 3000, Name: "ioctl", File: "nvidia0"})
	}
	w.End()
	return p
}

// bars reads the data as the script does.
func bars(t *testing.T, p *Page) (d data, count int64, busy int64) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, p.Write(&b, meta))
	_, rest, ok := strings.Cut(b.String(), `<script type="application/json" id="data">`)
	require.True(t, ok)
	text, _, _ := strings.Cut(rest, "</script>")
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	for _, process := range d.Processes {
		for _, on := range process.Tracks {
			end := map[int64]int64{}
			var at int64
			for i := 0; i < len(on.Bars); i += 8 {
				at += on.Bars[i+1]
				require.GreaterOrEqual(t, at, end[on.Bars[i]], "bars of a row overlap")
				end[on.Bars[i]] = at + on.Bars[i+2]
				require.LessOrEqual(t, end[on.Bars[i]], int64(d.Length))
				busy += on.Bars[i+3]
				count += on.Bars[i+4]
			}
		}
	}
	return d, count, busy
}

func TestPageHasAllSlices(t *testing.T) {
	p := decode(50)
	d, count, _ := bars(t, p)
	require.EqualValues(t, d.Slices, count)
	require.Zero(t, d.Short)
	require.Equal(t, map[string]uint64{"event_lost": 3}, d.Lost)
	require.Len(t, d.Arrows, 4*50)
	require.Equal(t, "python3 (4242)", d.Processes[0].Name)
	sum := map[string]uint64{}
	for i := 0; i < len(d.Sums); i += 5 {
		sum[d.Texts[d.Sums[i+1]]] += d.Sums[i+2]
	}
	// On the stream's track, too.
	require.EqualValues(t, 2*50*5, sum["flash_attention"])
	require.EqualValues(t, 50, sum["Sampler.read"])
	if *write != "" {
		var b bytes.Buffer
		require.NoError(t, decode(400).Write(&b, meta))
		require.NoError(t, os.WriteFile(*write, b.Bytes(), 0o644))
	}
}

// TestPageIsBounded: of a million slices few are drawn, and omissions are reported.
func TestPageIsBounded(t *testing.T) {
	p := New()
	on := track.Track{PID: 1, ID: 1}
	p.Process(1, "x")
	p.Name(on, "t", 1)
	const n = 1_000_000
	for i := range uint64(n) {
		p.Slice(on, track.Slice{Start: 1000 + i*30_000, End: 1000 + i*30_000 + 20 + i%9000, Name: fmt.Sprint("k", i%7), Category: "launch", Args: []track.Arg{{Key: "n", Number: int64(i)}}})
		p.Counter(1, "GB/s", i, float64(i))
		p.Arrow(track.Arrow{From: on, To: on, FromNS: i, ToNS: i})
	}
	require.LessOrEqual(t, p.bars, maxBars)
	require.LessOrEqual(t, len(p.arrows), maxArrows)
	require.LessOrEqual(t, len(p.texts), maxTexts)
	d, count, _ := bars(t, p)
	require.EqualValues(t, n, count+int64(d.Short))
	var all uint64
	for i := 0; i < len(d.Sums); i += 5 {
		all += d.Sums[i+2]
	}
	require.EqualValues(t, n, all)
	points := d.Processes[0].Counters[0].Points
	require.LessOrEqual(t, len(points), 2*maxPoints)
	require.EqualValues(t, n-1, points[len(points)-1])
}

func TestHostileNamesStayData(t *testing.T) {
	p := New()
	on := track.Track{PID: 1, ID: 1}
	p.Process(1, `</script><script>alert(1)</script>`)
	p.Name(on, "<img src=x onerror=alert(1)>", 1)
	p.Slice(on, track.Slice{Start: 1, End: 2, Name: "\xff" + strings.Repeat("</script>", 100_000), Category: "{{data}}"})
	var b bytes.Buffer
	require.NoError(t, p.Write(&b, Meta{Title: "</title><script>{{script}}"}))
	html := b.String()
	require.Less(t, len(html), 200_000)
	require.Equal(t, 2, strings.Count(html, "</script>"))
	require.Equal(t, 1, strings.Count(html, "</title>"))
	require.NotContains(t, html, "<img")
	bars(t, p)
}

// TestScriptRuns in a browser, if there is one: it draws, and logs no errors.
func TestScriptRuns(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("needs a browser: %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "t.html")
	var b bytes.Buffer
	require.NoError(t, decode(20).Write(&b, meta))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
		"--user-data-dir="+dir, "--virtual-time-budget=3000", "--dump-dom", "file://"+path)
	var log bytes.Buffer
	cmd.Stderr = &log
	dom, err := cmd.Output()
	require.NoError(t, err, log.String())
	require.NotContains(t, log.String(), "CONSOLE", "the script complains")
	require.Contains(t, string(dom), `flash_attention<span class="file">kernel launch</span>`)
	require.Regexp(t, `id="graph"[^>]* height="\d{3}`, string(dom))
}

// TestNamesHaveRoomBesideDetails: each kernel of --device-times has a number of its own among its details.
func TestNamesHaveRoomBesideDetails(t *testing.T) {
	p := New()
	on := track.Track{PID: 1, ID: 1}
	p.Process(1, "x")
	p.Name(on, "t", 1)
	const n = maxTexts + 10
	for i := range uint64(n) {
		name := "early"
		if i == n-1 {
			name = "late"
		}
		p.Slice(on, track.Slice{Start: 1000 * i, End: 1000*i + 500, Name: name, Category: "kernel", Args: []track.Arg{{Key: "correlation", Number: int64(i)}}})
	}
	d := p.encode(Meta{})
	counts := map[string]uint64{}
	for i := 0; i < len(d.Sums); i += 5 {
		counts[d.Texts[d.Sums[i+1]]] += d.Sums[i+2]
	}
	require.Equal(t, map[string]uint64{"early": n - 1, "late": 1}, counts)
	require.Positive(t, d.Bare)
}
