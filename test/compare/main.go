// SPDX-License-Identifier: Apache-2.0

// Command compare runs py_stack and other sampling profilers of Python on one
// program that keeps a CPU busy 50 frames deep, each at 99 Hz, in turns, and
// prints what they say and what they cost. Run it as root from the root of the
// repository: `make compare` does what is needed before.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// functions of workload.py, largest share first.
var functions = []string{"f20", "f17", "f14", "f12", "f10", "f08", "f07", "f05", "f04", "f03"}

func main() {
	rounds := flag.Int("rounds", 9, "turns of each tool")
	window := flag.Duration("window", 8*time.Second, "what is measured of a turn")
	python := flag.String("python", "python3", "interpreter of the workload")
	flag.Parse()
	if err := run(*rounds, *window, *python); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// result is what was measured of one tool.
type result struct {
	tool
	said                shares
	cpu, kernel, around []float64 // per turn: milliseconds per second; around: ms in all
	slower, slowerWall  []float64 // percent, against the turn without a tool of the same round
}

func run(rounds int, window time.Duration, python string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root; runs as user %d", os.Geteuid())
	}
	fetch := exec.Command("test/compare/fetch.sh")
	fetch.Stderr = os.Stderr
	line, err := fetch.Output()
	if err != nil {
		return fmt.Errorf("fetch austin: %w", err)
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("have the kernel count run time: %w", err)
	}
	defer stats.Close()
	dir, err := os.MkdirTemp("", "compare")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := begin(python, filepath.Join(dir, "counters"))
	if err != nil {
		return err
	}
	defer w.end()

	var results []*result
	for _, t := range tools(strings.Fields(string(line))) {
		results = append(results, &result{tool: t, said: shares{}})
	}
	first, err := w.now()
	if err != nil {
		return err
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "    round %d of %d\n", round+1, rounds)
		bare, err := w.bare(window)
		if err != nil {
			return err
		}
		for i := range results {
			// Another order in each round.
			r := results[(i+round)%len(results)]
			if err := w.turn(r, bare, window, filepath.Join(dir, "profile")); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	last, err := w.now()
	if err != nil {
		return err
	}
	truth := shares{}
	for i, name := range functions {
		truth[name] = last.used[i] - first.used[i]
	}
	print(os.Stdout, w.about, truth, results)
	return judge(truth, results)
}

// workload is the running workload.py.
type workload struct {
	cmd   *exec.Cmd
	file  string
	about string
}

// moment is what the workload has done until now.
type moment struct {
	at         time.Time
	cpu        time.Duration
	work       float64
	used       []float64 // seconds by function
	tool, kern time.Duration
}

func begin(python, file string) (*workload, error) {
	version, err := exec.Command(python, "-VV").Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", python, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	about, _, _ := strings.Cut(string(version), " (")
	w := &workload{cmd: exec.Command(python, "test/compare/workload.py", file), file: file, about: strings.TrimSpace(about)}
	w.cmd.Stderr, w.cmd.SysProcAttr = os.Stderr, session
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		w.end()
		return nil, fmt.Errorf("workload: %w", err)
	}
	if err := prefer(w.cmd.Process.Pid); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

// session lets prefer work: where the kernel divides the CPUs among sessions, a
// process's own priority counts within its session only.
var session = &syscall.SysProcAttr{Setsid: true}

// prefer has what else runs on the machine take little from a process.
func prefer(pid int) error {
	const nice = -15
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, nice); err != nil {
		return fmt.Errorf("set the priority of process %d: %w", pid, err)
	}
	err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), fmt.Append(nil, nice), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set the priority of the session of process %d: %w", pid, err)
	}
	return nil
}

func (w *workload) end() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

func (w *workload) now() (m moment, err error) {
	b, err := os.ReadFile(w.file)
	if err != nil {
		return m, err
	}
	m.at = time.Now()
	if m.cpu, err = cpuTime(w.cmd.Process.Pid); err != nil {
		return m, fmt.Errorf("the workload has ended: %w", err)
	}
	words := make([]float64, len(b)/8)
	for i := range words {
		words[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	if len(words) != 1+len(functions) {
		return m, fmt.Errorf("%s has %d numbers", w.file, len(words))
	}
	m.work, m.used = words[0], words[1:]
	return m, nil
}

// speed is work by second of CPU time, and by second.
type speed struct{ cpu, wall float64 }

func between(a, b moment) speed {
	done := b.work - a.work
	return speed{done / (b.cpu - a.cpu).Seconds(), done / b.at.Sub(a.at).Seconds()}
}

func (w *workload) bare(window time.Duration) (speed, error) {
	a, err := w.now()
	if err != nil {
		return speed{}, err
	}
	time.Sleep(window)
	b, err := w.now()
	return between(a, b), err
}

// turn measures one window of a tool.
func (w *workload) turn(r *result, bare speed, window time.Duration, file string) error {
	_ = os.Remove(file)
	p, err := launch(r.command(w.cmd.Process.Pid, file), file)
	if err != nil {
		return err
	}
	moments := make([]moment, 2)
	for i := range moments {
		if i > 0 {
			time.Sleep(window)
		}
		if moments[i], err = w.now(); err == nil {
			if moments[i].tool, err = cpuTime(p.cmd.Process.Pid); err == nil {
				moments[i].kern, err = p.kernel()
			}
		}
		if err != nil {
			_ = p.stop()
			return fmt.Errorf("it has ended: %w\n%s", err, p.output.Bytes())
		}
	}
	if err := p.stop(); err != nil {
		return err
	}
	a, b := moments[0], moments[1]
	seconds := b.at.Sub(a.at).Seconds()
	ms := func(d time.Duration) float64 { return 1e3 * d.Seconds() }
	r.cpu = append(r.cpu, ms(b.tool-a.tool)/seconds)
	r.kernel = append(r.kernel, ms(b.kern-a.kern)/seconds)
	state := p.cmd.ProcessState
	r.around = append(r.around, ms(state.UserTime()+state.SystemTime()-(b.tool-a.tool)))
	with := between(a, b)
	r.slower = append(r.slower, 100*(1-with.cpu/bare.cpu))
	r.slowerWall = append(r.slowerWall, 100*(1-with.wall/bare.wall))
	if r.read == nil {
		return nil
	}
	said, err := r.read(file)
	if err != nil {
		return fmt.Errorf("read its profile: %w; it ended with %v\n%s", err, state, p.output.Bytes())
	}
	r.said.add(said)
	return nil
}

// cpuTime is what a process has used, user and system: its CPU-time clock, whose
// number is made of its id (MAKE_PROCESS_CPUCLOCK, linux/posix-timers_types.h).
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// halfWidth is the range of the middle half, halved.
func halfWidth(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[n*3/4] - sorted[n/4]) / 2
}

func print(out io.Writer, about string, truth shares, results []*result) {
	var u unix.Utsname
	_ = unix.Uname(&u)
	fmt.Fprintf(out, "%s, Linux %s\n\n| self, %% | the program's own clock |", about, unix.ByteSliceToString(u.Release[:]))
	var read []*result
	for _, r := range results {
		if r.read != nil {
			read = append(read, r)
			fmt.Fprintf(out, " %s |", r.name)
		}
	}
	fmt.Fprintf(out, "\n|---|--:|%s\n", strings.Repeat("--:|", len(read)))
	for _, name := range functions {
		fmt.Fprintf(out, "| `%s` | %.1f |", name, truth.percent(name))
		for _, r := range read {
			fmt.Fprintf(out, " %.1f |", r.said.percent(name))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprint(out, "| elsewhere | |")
	for _, r := range read {
		rest := 100.0
		for _, name := range functions {
			rest -= r.said.percent(name)
		}
		fmt.Fprintf(out, " %.1f |", rest)
	}
	fmt.Fprint(out, "\n| samples | |")
	for _, r := range read {
		fmt.Fprintf(out, " %.0f |", r.said.sum())
	}
	fmt.Fprint(out, "\n\n| cost | CPU time, ms/s | eBPF run time, ms/s | together | start and end, ms | work per CPU second | work per second |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		fmt.Fprintf(out, "| %s | %.2f | %.2f | **%.2f** | %.0f | %+.2f ± %.2f %% | %+.2f ± %.2f %% |\n", r.name,
			median(r.cpu), median(r.kernel), r.cost(), median(r.around),
			-median(r.slower), halfWidth(r.slower), -median(r.slowerWall), halfWidth(r.slowerWall))
	}
}

// cost in milliseconds per second.
func (r *result) cost() float64 { return median(r.cpu) + median(r.kernel) }

// judge fails when a share is 2 points from another tool's, or when the first
// tool, ours, costs more than another.
func judge(truth shares, results []*result) error {
	ours := results[0]
	var wrong []string
	for _, r := range results[1:] {
		for _, name := range functions {
			if r.read == nil {
				break
			}
			if d := ours.said.percent(name) - r.said.percent(name); math.Abs(d) > 2 {
				wrong = append(wrong, fmt.Sprintf("%s: %+.1f points from %s (the program says %.1f %%)", name, d, r.name, truth.percent(name)))
			}
		}
		if ours.cost() >= r.cost() {
			wrong = append(wrong, fmt.Sprintf("we cost %.2f ms/s, %s %.2f", ours.cost(), r.name, r.cost()))
		}
	}
	if wrong != nil {
		return fmt.Errorf("%s", strings.Join(wrong, "\n"))
	}
	return nil
}
