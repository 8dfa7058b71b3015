// SPDX-License-Identifier: Apache-2.0

// Command compare runs py_stack and other sampling profilers of Python on one program
// that keeps a CPU busy 50 frames deep, each at 99 Hz, in turns, and prints their results
// and their cost. Run it as root from the root of the repository: `make compare` prepares
// it.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// result is the measurement of one tool.
type result struct {
	tool
	said                shares
	cpu, kernel, around []float64 // per turn: milliseconds per second; around: ms in all
	slower, slowerWall  []float64 // percent, against the turn without a tool of the same round
	lost                []float64 // ms/s in which the program did not run its own code, less those without a tool
}

func run(rounds int, window time.Duration, python string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root; runs as user %d", os.Geteuid())
	}
	fetch := exec.Command("test/measure/compare/fetch.sh")
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
	c := comparison{tools: tools(strings.Fields(string(line))), python: python, dir: dir, rounds: rounds, window: window}
	fmt.Fprintln(os.Stderr, "    with a CPU to spare")
	free, err := c.measure()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "    the program and the tool on one CPU")
	var shared *measured
	if err := onOneCPU(func() error {
		shared, err = c.measure()
		return err
	}); err != nil {
		return err
	}
	free.print(os.Stdout)
	shared.printLost(os.Stdout)
	return errors.Join(free.judge(), shared.judgeLost())
}

// comparison is the set of tools and parameters.
type comparison struct {
	tools       []tool
	python, dir string
	rounds      int
	window      time.Duration
}

// measured has the results of the rounds.
type measured struct {
	about   string // of the interpreter
	truth   shares // by the program's own clock
	results []*result
}

func (c *comparison) measure() (*measured, error) {
	w, err := begin(c.python, filepath.Join(c.dir, "counters"))
	if err != nil {
		return nil, err
	}
	defer w.end()
	m := &measured{about: w.about, truth: shares{}}
	for _, t := range c.tools {
		m.results = append(m.results, &result{tool: t, said: shares{}})
	}
	first, err := w.now()
	if err != nil {
		return nil, err
	}
	for round := range c.rounds {
		fmt.Fprintf(os.Stderr, "    round %d of %d\n", round+1, c.rounds)
		bare, err := w.bare(c.window)
		if err != nil {
			return nil, err
		}
		for i := range m.results {
			// Another order in each round.
			r := m.results[(i+round)%len(m.results)]
			if err := w.turn(r, bare, c.window, filepath.Join(c.dir, "profile")); err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	last, err := w.now()
	if err != nil {
		return nil, err
	}
	for i, name := range functions {
		m.truth[name] = last.used[i] - first.used[i]
	}
	return m, nil
}

// onOneCPU has the programs that f starts run on one CPU.
func onOneCPU(f func() error) error {
	runtime.LockOSThread() // a process inherits from the thread that starts it
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read which CPUs may be used: %w", err)
	}
	for cpu := range len(before) * 64 {
		if before.IsSet(cpu) {
			one.Zero()
			one.Set(cpu) // the last
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("keep to one CPU: %w", err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}

// workload is the running workload.py.
type workload struct {
	cmd   *exec.Cmd
	file  string
	about string
}

// moment is the workload's progress at a time.
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
	w := &workload{cmd: exec.Command(python, "test/measure/compare/workload.py", file), file: file, about: strings.TrimSpace(about)}
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

// prefer raises the priority of a process over others on the machine.
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

// speed is work by second of CPU time, and by second; and of each second the
// milliseconds in which the program did not run its own code, but waited for a CPU or
// was sampled by an eBPF program.
type speed struct{ cpu, wall, lost float64 }

func between(a, b moment) speed {
	done, seconds := b.work-a.work, b.at.Sub(a.at).Seconds()
	own := (b.cpu - a.cpu - (b.kern - a.kern)).Seconds()
	return speed{done / (b.cpu - a.cpu).Seconds(), done / seconds, 1e3 * (1 - own/seconds)}
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
	r.lost = append(r.lost, with.lost-bare.lost)
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

// cpuTime returns the user and system time of a process: its CPU-time clock, whose number
// is derived from its id (MAKE_PROCESS_CPUCLOCK, linux/posix-timers_types.h).
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, err
	}
	return time.Duration(t.Nano()), nil
}
