// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer/overhead"
)

// trainingCase is one way to trace the training step, with the targets of the median of
// ten windows: program runs and milliseconds of eBPF in a step, and the step's time in
// relation to that without tracing.
type trainingCase struct {
	name  string
	runs  float64
	ms    float64
	times float64
	// commands of ig-gpu that run at once, each a gadget and its arguments.
	commands [][]string
}

var trainingCases = []trainingCase{
	{"cuda_alloc", 600, 0.35, 1.18, [][]string{{"cuda_alloc"}}},
	{"cuda_alloc --torch off", 60, 0.05, 1.03, [][]string{{"cuda_alloc", "--torch", "off"}}},
	{"cuda_kernel", 700, 0.6, 1.20, [][]string{{"cuda_kernel"}}},
	{"cuda_kernel --sample 0", 700, 0.35, 1.15, [][]string{{"cuda_kernel", "--sample", "0"}}},
	{"nccl_trace", 80, 0, 0, [][]string{{"nccl_trace"}}},
	{"py_stack", 0, 0, 0, [][]string{{"py_stack"}}},
	{"all four", 0, 0, 0, [][]string{{"cuda_alloc"}, {"cuda_kernel"}, {"nccl_trace"}, {"py_stack"}}},
}

// targets are those that the case has: runs, ms, times.
func (c trainingCase) targets() string {
	var texts []string
	for format, v := range map[string]float64{"%.0f": c.runs, "%.2f ms": c.ms, "x %.2f": c.times} {
		if v > 0 {
			texts = append(texts, fmt.Sprintf(format, v))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

const (
	trainingPairs   = 10
	trainingWindows = 10
	trainingWindow  = 300 * time.Millisecond
	// trainingSettles is the time until the probes on demand are detached again.
	trainingSettles = 2 * time.Second
)

// training measures real PyTorch on the simulated driver: the overhead of tracing on a
// training step, in pairs with the step alone, compared with empty programs at the same
// sites and PyTorch's own recorders.
func (b *bench) training() error {
	root := "build/fixtures/torch"
	if _, err := os.Stat(filepath.Join(root, "unpacked")); errors.Is(err, os.ErrNotExist) {
		fmt.Println("\nA training step of PyTorch: not measured, since it is not there; make test-torch fetches it")
		return nil
	}
	t, err := b.startTraining()
	if err != nil {
		return err
	}
	defer t.stop()
	if err := t.callTable(); err != nil {
		return err
	}
	b.title("A training step of PyTorch 2.6, real libraries", "runs/step", "eBPF ms", "alone ms", "traced ms", "times", "empty", "ours/empty")
	var sum float64
	for _, c := range trainingCases {
		v, err := b.trainingCase(t, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if len(c.commands) == 1 && len(c.commands[0]) == 1 {
			sum += v.ms
		} else if c.ms == 0 {
			c.ms = sum // all at once: not more than each alone
		}
		empty, ours := "", ""
		if v.probed { // py_stack has no places
			empty = fmt.Sprintf("%.3f", v.empty)
			if v.empty > 1.01 { // else it is lost in the noise
				ours = fmt.Sprintf("%.2f", (v.times-1)/(v.empty-1))
			}
		}
		b.row(c.name, c.targets(), number(v.runs), fmt.Sprintf("%.3f", v.ms), fmt.Sprintf("%.2f", v.alone), fmt.Sprintf("%.2f", v.traced),
			fmt.Sprintf("%.3f", v.times), empty, ours)
	}
	for _, mode := range []string{"history", "profiler"} {
		v, err := t.recorded(mode)
		if err != nil {
			return err
		}
		name := map[string]string{"history": "_record_memory_history", "profiler": "torch.profiler, CPU"}[mode]
		b.row(name, "", "", "", fmt.Sprintf("%.2f", v.alone), fmt.Sprintf("%.2f", v.traced), fmt.Sprintf("%.3f", v.times))
	}
	return nil
}

// training is the running workload.
type training struct {
	*child
	counts string // directory of the simulated driver's counts of calls

	mu               sync.Mutex
	steps, wall, cpu float64
}

func (b *bench) startTraining() (*training, error) {
	counts, err := os.MkdirTemp("", "gpu-gadgets-bench")
	if err != nil {
		return nil, err
	}
	t := &training{counts: counts}
	t.child, err = start(nil, "env", "SIMCUDA_COUNTS="+t.counts, "scripts/pytorch.sh", "test/measure/bench/training.py")
	if err != nil {
		return nil, err
	}
	t.listen(func(line []byte) {
		t.mu.Lock()
		defer t.mu.Unlock()
		_, _ = fmt.Sscan(string(line), &t.steps, &t.wall, &t.cpu)
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		steps, _ := t.now()
		select {
		case <-t.done:
			return nil, fmt.Errorf("PyTorch ended: %s", t.errors.String())
		default:
		}
		if steps > 200 {
			return t, nil
		}
		if time.Now().After(end) {
			t.stop()
			return nil, fmt.Errorf("PyTorch trained nothing in a minute: %s", t.errors.String())
		}
	}
}

func (t *training) stop() {
	t.child.stop()
	_ = os.RemoveAll(t.counts)
}

// now is how many steps are done, and when that was, in seconds.
func (t *training) now() (steps, wall float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.steps, t.wall
}

// stepTime is the mean of a second or two, in milliseconds.
func (t *training) stepTime() (float64, error) {
	n0, w0 := t.now()
	time.Sleep(1500 * time.Millisecond)
	// A recorder may need seconds before and after its steps.
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if n1, w1 := t.now(); n1 >= n0+40 {
			return (w1 - w0) / (n1 - n0) * 1e3, nil
		}
	}
	return 0, fmt.Errorf("PyTorch stands still: %s", t.errors.String())
}

// trainingCost is per step: program runs, milliseconds of eBPF, wall time untraced and
// traced, and their ratio, for ours and for empty programs.
type trainingCost struct {
	runs, ms, alone, traced, times, empty float64
	probed                                bool // there are places for empty programs
}

func (b *bench) trainingCase(t *training, c trainingCase) (v trainingCost, err error) {
	tables, err := trainingPoints(c)
	if err != nil {
		return v, err
	}
	var runs, ms, alone, traced, times, empty []float64
	for range trainingPairs {
		without, err := t.stepTime()
		if err != nil {
			return v, err
		}
		bare, err := overhead.AttachEmpty(t.cmd.Process.Pid, tables...)
		if err != nil {
			return v, err
		}
		time.Sleep(200 * time.Millisecond)
		probed, err := t.stepTime()
		bare()
		if err != nil {
			return v, err
		}
		n, spent, with, err := b.tracedStep(t, c, len(runs) == 0)
		if err != nil {
			return v, err
		}
		runs, ms = append(runs, n...), append(ms, spent...)
		alone, traced = append(alone, without), append(traced, with)
		times, empty = append(times, with/without), append(empty, probed/without)
	}
	return trainingCost{overhead.Median(runs), overhead.Median(ms), overhead.Median(alone), overhead.Median(traced), overhead.Median(times), overhead.Median(empty), len(tables) > 0}, nil
}

// tracedStep measures one traced stretch; with windows, also program runs and their time.
func (b *bench) tracedStep(t *training, c trainingCase, windows bool) (runs, ms []float64, step float64, err error) {
	var agents []*agent
	defer func() {
		for _, a := range agents {
			a.stop()
		}
	}()
	var all []*programs
	for _, command := range c.commands {
		a, err := b.startOn(t.cmd.Process.Pid, command...)
		if err != nil {
			return nil, nil, 0, err
		}
		agents = append(agents, a)
	}
	time.Sleep(trainingSettles)
	for _, a := range agents {
		p, err := probesOf(a.cmd.Process.Pid)
		if err != nil {
			return nil, nil, 0, err
		}
		defer p.close()
		all = append(all, p)
	}
	for range trainingWindows {
		if !windows {
			break
		}
		before, err := sumOf(all)
		if err != nil {
			return nil, nil, 0, err
		}
		n0, _ := t.now()
		time.Sleep(trainingWindow)
		after, err := sumOf(all)
		if err != nil {
			return nil, nil, 0, err
		}
		n1, _ := t.now()
		if n1 <= n0 {
			return nil, nil, 0, fmt.Errorf("PyTorch stands still: %s", t.errors.String())
		}
		runs = append(runs, float64(after.enters-before.enters)/(n1-n0))
		ms = append(ms, (after.time-before.time).Seconds()*1e3/(n1-n0))
	}
	step, err = t.stepTime()
	return runs, ms, step, err
}

func sumOf(all []*programs) (sum runs, err error) {
	for _, p := range all {
		r, err := p.runs()
		if err != nil {
			return sum, err
		}
		sum.enters += r.enters
		sum.time += r.time
	}
	return sum, nil
}

// recorded is the cost of a step with one of PyTorch's own recorders.
func (t *training) recorded(mode string) (v trainingCost, err error) {
	var alone, traced, times []float64
	for range trainingPairs {
		without, err := t.stepTime()
		if err != nil {
			return v, err
		}
		fmt.Fprintln(t.stdin, mode)
		if _, err := t.stepTime(); err != nil { // until it has begun
			return v, err
		}
		with, err := t.stepTime()
		if err != nil {
			return v, err
		}
		fmt.Fprintln(t.stdin, "none")
		if _, err := t.stepTime(); err != nil {
			return v, err
		}
		alone, traced, times = append(alone, without), append(traced, with), append(times, with/without)
	}
	return trainingCost{alone: overhead.Median(alone), traced: overhead.Median(traced), times: overhead.Median(times)}, nil
}

// startOn starts ig-gpu on one process and waits until it is attached.
func (b *bench) startOn(pid int, command ...string) (*agent, error) {
	args := append([]string{"run"}, command...)
	args = append(args, "--host", "--pid", strconv.Itoa(pid), "-o", "json")
	a := &agent{attached: make(chan struct{}), firstRow: make(chan time.Duration, 1)}
	var err error
	if a.child, err = start(nil, b.agent, args...); err != nil {
		return nil, err
	}
	seen := make(chan struct{})
	var once sync.Once
	a.listen(func(line []byte) {
		// Every gadget prints something once it is attached.
		if strings.Contains(string(line), `"status":"attached"`) || command[0] == "py_stack" {
			once.Do(func() { close(seen) })
		}
	})
	select {
	case <-seen:
		return a, nil
	case <-a.done:
		err = fmt.Errorf("ig-gpu ended: %s", a.errors.String())
	case <-time.After(30 * time.Second):
		err = fmt.Errorf("ig-gpu attached to nothing in 30 s: %s", a.errors.String())
	}
	_ = a.cmd.Process.Signal(unix.SIGINT)
	a.stop()
	return nil, err
}
