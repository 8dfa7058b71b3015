// SPDX-License-Identifier: Apache-2.0

package pprof

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	gpu "github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestProfile(t *testing.T) {
	p, err := build(fixture.Small())
	require.NoError(t, err)
	golden(t, "small.txt", p.String())
}

func TestDecodeGivesBackWhatTheFormatHolds(t *testing.T) {
	for name, p := range map[string]*gpu.Profile{"small": fixture.Small(), "large": fixture.Large(500), "kinds": fixture.Kinds()} {
		var b bytes.Buffer
		require.NoError(t, Encode(&b, p), name)
		got, err := Decode(&b)
		require.NoError(t, err, name)

		require.Len(t, got.Rows, len(p.Rows), name)
		require.True(t, p.Time.Equal(got.Time), name)
		require.Equal(t, p.Duration, got.Duration, name)
		require.Equal(t, p.Notes, got.Notes, name)
		for i, want := range p.Rows {
			row := got.Rows[i]
			require.Equal(t, want.Stack, row.Stack, name)
			require.NoError(t, row.Check(), name)
			for _, typ := range p.Types() {
				require.Equal(t, want.Get(typ), row.Get(typ), "%s %s", name, typ)
			}
			want.Process.ID, row.Process.ID = 0, 0
			require.Equal(t, want.Process, row.Process, name)
			require.Equal(t, want.Kind, row.Kind, name)
			require.Equal(t, want.Device, row.Device, name)
		}
	}
}

func TestSameProfileGivesSameBytes(t *testing.T) {
	var a, b bytes.Buffer
	require.NoError(t, Encode(&a, fixture.Small()))
	require.NoError(t, Encode(&b, fixture.Small()))
	require.Equal(t, a.Bytes(), b.Bytes())
}

func TestDecodeRefusesOtherFiles(t *testing.T) {
	_, err := Decode(bytes.NewReader([]byte("not a profile")))
	require.Error(t, err)

	var b bytes.Buffer
	p, err := build(fixture.Small())
	require.NoError(t, err)
	p.SampleType[3].Type = "cpu"
	require.NoError(t, p.Write(&b))
	_, err = Decode(&b)
	require.ErrorContains(t, err, "no sample type inuse_space")
}

func TestEmptyProfile(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Encode(&b, gpu.New(fixture.Small().Time, nil)))
	got, err := Decode(&b)
	require.NoError(t, err)
	require.Empty(t, got.Rows)
}

// The reader that people use is the judge of the file.
func TestGoToolPprof(t *testing.T) {
	goTool, err := exec.LookPath("go")
	require.NoError(t, err, "go test without go in PATH")
	dir := t.TempDir()
	write := func(name string, p *gpu.Profile) string {
		var b bytes.Buffer
		require.NoError(t, Encode(&b, p))
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
		return path
	}
	small, earlier := write("small.pb.gz", fixture.Small()), write("earlier.pb.gz", fixture.Earlier())

	top := func(args ...string) string {
		cmd := exec.Command(goTool, append([]string{"tool", "pprof", "-symbolize=none", "-nodecount=20"}, args...)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir, "TZ=UTC")
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	golden(t, "top.txt", top("-top", "-lines", small))
	golden(t, "top_alloc_objects.txt", top("-top", "-sample_index=alloc_objects", small))
	golden(t, "top_diff.txt", top("-top", "-diff_base", earlier, small))
	golden(t, "tags.txt", top("-tags", small))
}

func FuzzDecode(f *testing.F) {
	for _, p := range []*gpu.Profile{fixture.Small(), fixture.Large(3)} {
		raw, err := build(p)
		require.NoError(f, err)
		var b bytes.Buffer
		require.NoError(f, raw.WriteUncompressed(&b))
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(bytes.NewReader(b))
		if err != nil {
			return
		}
		require.NoError(t, Encode(&bytes.Buffer{}, p))
	})
}

// TestTimeIsSamplesAndNanoseconds: a profile of time has pprof's types for it, and
// comes back with its subject, its period and its threads.
func TestTimeIsSamplesAndNanoseconds(t *testing.T) {
	row := gpu.Row{
		Process: gpu.Process{ID: 7, PID: 7, Comm: "python3"}, Thread: 9, Device: gpu.UnknownDevice,
		Stack:  stack.Stack{{Kind: stack.KindPython, Function: "f", File: "a.py", Line: 3}},
		Values: gpu.Values{Samples: 3, Nanoseconds: 30_000_000},
	}
	for subject, unit := range map[gpu.Subject]string{gpu.CPU: "cpu", gpu.Wall: "wall"} {
		p := gpu.New(time.Unix(1, 0), []gpu.Row{row})
		p.Subject, p.Period, p.Duration = subject, 10*time.Millisecond, 3*time.Second
		var b bytes.Buffer
		require.NoError(t, Encode(&b, p))
		raw, err := profile.Parse(bytes.NewReader(b.Bytes()))
		require.NoError(t, err)
		require.Equal(t, unit, raw.DefaultSampleType)
		require.Equal(t, profile.ValueType{Type: unit, Unit: "nanoseconds"}, *raw.PeriodType)
		require.EqualValues(t, 10_000_000, raw.Period)
		require.EqualValues(t, 3_000_000_000, raw.DurationNanos)
		require.Equal(t, []int64{3, 30_000_000}, raw.Sample[0].Value)
		require.NotContains(t, raw.Sample[0].Label, "device")
		back, err := Decode(bytes.NewReader(b.Bytes()))
		require.NoError(t, err)
		require.Equal(t, p, back)
	}
}

// TestKindsOfFramesComeBack, in their order, of files and of what is sent to Pyroscope.
func TestKindsOfFramesComeBack(t *testing.T) {
	p := fixture.Kinds()
	want := p.Rows[0].Stack
	var file, sent bytes.Buffer
	require.NoError(t, Encode(&file, p))
	back, err := Decode(bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	require.Equal(t, want, back.Rows[0].Stack)

	_, err = new(WindowEncoder).Encode(&sent, Window{Start: p.Time, Rows: p.Rows, PeriodType: "space", PeriodUnit: "bytes",
		Columns: []Column{{"alloc_space", "bytes", gpu.AllocSpace}}})
	require.NoError(t, err)
	raw, err := profile.ParseData(sent.Bytes())
	require.NoError(t, err)
	var frames stack.Stack
	for _, l := range raw.Sample[0].Location {
		frames = append(frames, decodeFrame(l, l.Line[0]))
	}
	require.Equal(t, want, frames)
	require.Equal(t, "[gpu]", raw.Sample[0].Location[0].Mapping.File)
}

// What is kept of earlier windows is not seen in later ones, whichever they were.
func TestEarlierWindowsDoNotShow(t *testing.T) {
	windowOf := func(p *gpu.Profile) Window {
		return Window{Start: p.Time, Rows: p.Rows, PeriodType: "space", PeriodUnit: "bytes", Columns: []Column{{"alloc_space", "bytes", gpu.AllocSpace}}}
	}
	var used WindowEncoder
	for _, p := range []*gpu.Profile{fixture.Large(300), fixture.Small(), fixture.Kinds(), fixture.Spans(), fixture.Large(500), gpu.New(time.Unix(0, 0), nil), fixture.Small()} {
		var again, first bytes.Buffer
		size, err := used.Encode(&again, windowOf(p))
		require.NoError(t, err)
		_, err = new(WindowEncoder).Encode(&first, windowOf(p))
		require.NoError(t, err)
		require.Equal(t, first.Bytes(), again.Bytes())
		unzipped, err := gzip.NewReader(bytes.NewReader(first.Bytes()))
		require.NoError(t, err)
		plain, err := io.ReadAll(unzipped)
		require.NoError(t, err)
		require.Len(t, plain, size)
		read, err := profile.ParseData(again.Bytes())
		require.NoError(t, err)
		require.Len(t, read.Sample, len(p.Rows))
	}
}

func TestNamesAreForgottenWhenThereAreManyOfThem(t *testing.T) {
	var e WindowEncoder
	const windows, spans = 300, 1000
	row, rows := fixture.Spans().Rows[0], make([]gpu.Row, spans)
	most := 0
	for w := range windows {
		for i := range rows {
			rows[i] = row
			rows[i].Span = gpu.Span(w*spans + i + 1)
		}
		_, err := e.Encode(io.Discard, Window{Rows: rows, Columns: []Column{{"alloc_space", "bytes", gpu.AllocSpace}}})
		require.NoError(t, err)
		most = max(most, len(e.names.texts))
	}
	require.GreaterOrEqual(t, most, maxTexts)
	require.Less(t, most, maxTexts+2*spans)
	require.Less(t, len(e.names.texts), windows*spans-maxTexts+2*spans)
}

// TestWasteOfThePoolComesBack, in sample types that only profiles with such waste have.
func TestWasteOfThePoolComesBack(t *testing.T) {
	line := stack.Stack{{Kind: stack.KindPython, Function: "f", File: "a.py", Line: 1}}
	tensor := gpu.Row{Process: gpu.Process{PID: 1}, Stack: line, Kind: gpu.KindTensor, Values: gpu.Values{
		AllocBytes: 1024, AllocObjects: 2, InuseBytes: 1024, InuseObjects: 2, PeakBytes: 1024}}
	plain := gpu.New(time.Unix(1, 0), []gpu.Row{tensor})
	require.NotContains(t, plain.Types(), gpu.TensorRoundingSpace)
	tensor.RoundingBytes, tensor.FragmentedBytes = 24, 5000
	var b bytes.Buffer
	require.NoError(t, Encode(&b, gpu.New(time.Unix(1, 0), []gpu.Row{tensor})))
	back, err := Decode(&b)
	require.NoError(t, err)
	require.Equal(t, append(plain.Types(), gpu.WasteTypes()...), back.Types())
	require.EqualValues(t, []int64{24, 5000}, []int64{back.Rows[0].RoundingBytes, back.Rows[0].FragmentedBytes})
	require.Equal(t, []string{"tensor_rounding_space", "bytes"}, []string{gpu.TensorRoundingSpace.String(), gpu.TensorRoundingSpace.Unit()})
}
