// SPDX-License-Identifier: Apache-2.0

// Package native tests the walk of native stacks by the rules of .eh_frame (bpf/stack/unwind.h)
// against the unwinder of the traced program itself.
package native

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/unwinder"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/simulated"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/tracer"
)

// longVariable, set, makes each build of the program call that often.
const longVariable = "NATIVE_CALLS"

// memory of the rules: that of the default.
const memory = 64 << 20

// start loads and attaches cuda_alloc with rules.
func start(t *testing.T, library string, memory int64, edits ...func(*tracer.Spec)) (*tracer.Tracer, *unwinder.Unwinder) {
	t.Helper()
	tr := tracer.Start(t, library, tracer.Options{Edit: func(spec *tracer.Spec) {
		tracer.AllowRules(t, spec, memory)
		for _, edit := range edits {
			edit(spec)
		}
	}})
	return tr, tr.LoadRules()
}

// build compiles a program of testdata.
func build(t *testing.T, source string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".cpp"))
	args := append(flags, "-o", program, "testdata/"+source, "-ldl", "-lpthread")
	out, err := exec.Command("g++", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// paths are the stacks that a program had, and how often, by the text of their addresses.
type paths map[string]int

// process is a traced program that waits for its input.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func run(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(program, args...)}
	p.Env = append(os.Environ(), "SIMCUDA_INIT_MS=0")
	p.Stderr = os.Stderr
	var err error
	p.in, err = p.StdinPipe()
	require.NoError(t, err)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	require.Equal(t, "ready", p.line(t))
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSuffix(line, "\n")
}

// goOn has the program do its work, and reads what it was.
func (p *process) goOn(t *testing.T) paths {
	t.Helper()
	_, err := io.WriteString(p.in, "\n")
	require.NoError(t, err)
	all := paths{}
	for {
		line := p.line(t)
		if line == "end" {
			return all
		}
		count, frames, ok := strings.Cut(line, " ")
		require.True(t, ok, line)
		n, err := strconv.Atoi(count)
		require.NoError(t, err)
		all[frames] += n
	}
}

// result counts compared stacks.
type result struct {
	calls, complete, wrong int
	cut                    map[stack.Flags]int
}

// why are the flags of a stack that is cut.
const why = stack.NativeTruncated | stack.NativeNoRules | stack.NativeNotLoaded | stack.NativeBroken |
	stack.NativeUnreadable | stack.NativeBusy

// compare looks every stack up among those that the program had.
func compare(t *testing.T, rows []tracer.Row, pid int, want paths) result {
	t.Helper()
	r := result{cut: map[stack.Flags]int{}}
	prefixes := map[string]bool{}
	for frames := range want {
		for i := range frames {
			if frames[i] == ' ' {
				prefixes[frames[:i]] = true
			}
		}
		prefixes[frames] = true
	}
	seen := paths{}
	for _, row := range rows {
		if int(row.PID) != pid || row.Kind == tracer.KindContext {
			continue
		}
		n := int(row.AllocObjects)
		r.calls += n
		require.GreaterOrEqual(t, len(row.Native), 2)
		// The first two are the driver's function and the one that called it.
		var text []string
		for _, address := range row.Native[2:] {
			text = append(text, fmt.Sprintf("%#x", address))
		}
		frames := strings.Join(text, " ")
		flags := stack.Flags(row.Flags) & why
		switch {
		case flags != 0 && (frames == "" || prefixes[frames]):
			r.cut[flags] += n
		case flags == 0 && want[frames] > 0:
			r.complete += n
			seen[frames] += n
		default:
			if r.wrong += n; r.wrong < 5 {
				assert.Fail(t, "wrong stack", "flags %d, %d frames: %s", row.Flags, len(text), nearest(frames, want))
			}
		}
	}
	for frames, n := range seen {
		assert.LessOrEqual(t, n, want[frames], "a stack that another call had")
	}
	return r
}

// nearest says where a stack leaves the one of those it should be that it shares most with.
func nearest(frames string, want paths) string {
	got := strings.Fields(frames)
	var best []string
	shared := -1
	for w := range want {
		f := strings.Fields(w)
		n := 0
		for n < len(f) && n < len(got) && f[n] == got[n] {
			n++
		}
		if n > shared {
			best, shared = f, n
		}
	}
	return fmt.Sprintf("%d are equal, then %v instead of %v", shared, got[shared:], best[shared:])
}

func TestEveryFrameIsThatOfTheProgramsOwnUnwinder(t *testing.T) {
	calls := 3000
	if text := os.Getenv(longVariable); text != "" {
		var err error
		calls, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	driver := simulated.DriverCopy(t)
	// A tracer has room for the stacks of some builds; to load one takes longer than what they do.
	const buildsOfTracer = 3
	var tr *tracer.Tracer
	var u *unwinder.Unwinder
	for i, flags := range [][]string{
		{"-O0"}, {"-O1"}, {"-O2"}, {"-O3"}, {"-Os"},
		{"-O2", "-fno-omit-frame-pointer"}, {"-O2", "-fomit-frame-pointer"}, {"-O2", "-static-libgcc", "-static-libstdc++"},
		{"-O2", "-fcf-protection=full", "-Wl,-z,lazy"}, {"-O2", "-no-pie"},
	} {
		if i%buildsOfTracer == 0 {
			tr, u = start(t, driver, memory)
		}
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			program := build(t, "paths.cpp", flags...)
			misses := u.Stats().Misses
			p := run(t, program, driver, strconv.Itoa(calls), "1")
			want := p.goOn(t)
			r := compare(t, tr.RowsOf(p.Process.Pid), p.Process.Pid, want)
			t.Logf("%d stacks, %d calls: %d complete, %d wrong, cut %v; %+v", len(want), r.calls, r.complete, r.wrong, r.cut, u.Stats())
			total := 0
			for _, n := range want {
				total += n
			}
			assert.GreaterOrEqual(t, total, calls)
			assert.Equal(t, total, r.calls)
			assert.Zero(t, r.wrong)
			assert.Greater(t, r.complete, total/2)
			assert.Greater(t, u.Stats().Misses, misses, "the rules of this build are read")
			for flags := range r.cut {
				assert.True(t, slices.Contains([]stack.Flags{
					stack.NativeTruncated, stack.NativeNotLoaded, stack.NativeBusy}, flags), "cut by %d", flags)
			}
		})
	}
}
