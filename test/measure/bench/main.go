// SPDX-License-Identifier: Apache-2.0

// Command bench measures the cost of tracing, on the simulated driver: the eBPF
// programs by the kernel's own count of their run time, ig-gpu's processor time
// and memory, and the time that a call takes. Run it as root, from the root of
// the repository, after make build simcuda: `make bench` does all of it.
//
// Run time is the figure that is comparable between machines. Wall time is mostly the
// probe itself, which is several times more expensive on a virtual machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func main() {
	only := flag.String("only", "", "comma-separated: training, options, bare, pair, python, agent, start, overhead, nccl, tensors; default all")
	library := flag.String("libcuda", "build/simcuda/libcuda.so.1", "the simulated driver")
	flag.Parse()
	if err := run(*only, *library); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	library, agent  string
	workload, depth string // the programs that make calls
	pairBaseline    float64

	gadget  string // that ig-gpu runs
	rowMark string // of its rows as JSON
}

func run(only, library string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root; runs as user %d", os.Geteuid())
	}
	if out, err := exec.Command("make", "-s", "-C", "examples/bench").CombinedOutput(); err != nil {
		return fmt.Errorf("build examples/bench: %w\n%s", err, out)
	}
	b := &bench{gadget: "cuda_alloc", rowMark: `"alloc_objects":`}
	for to, path := range map[*string]string{
		&b.library: library, &b.agent: "bin/ig-gpu",
		&b.workload: "build/bench/bench", &b.depth: "test/measure/bench/workload.py",
	} {
		var err error
		if *to, err = filepath.Abs(path); err != nil {
			return err
		}
		if _, err := os.Stat(*to); err != nil {
			return fmt.Errorf("run make build simcuda first: %w", err)
		}
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("have the kernel count run time: %w", err)
	}
	defer stats.Close()

	b.machine()
	begun := time.Now()
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"training", b.training}, {"options", b.options},
		{"bare", b.bare}, {"pair", b.pair}, {"python", b.python},
		{"agent", b.agentCost}, {"start", b.startTime}, {"overhead", b.overhead},
		{"nccl", b.nccl}, {"communicators", b.communicators}, {"tensors", b.tensors}, {"launch", b.launch},
	} {
		if only != "" && !strings.Contains(","+only+",", ","+part.name+",") {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	fmt.Printf("\n%.0f s\n", time.Since(begun).Seconds())
	return nil
}

// machine describes the machine of the measurement.
func (b *bench) machine() {
	var u unix.Utsname
	_ = unix.Uname(&u)
	load, _ := os.ReadFile("/proc/loadavg")
	info, _ := os.ReadFile("/proc/cpuinfo")
	kind := "bare metal or unknown"
	if strings.Contains(string(info), " hypervisor") {
		kind = "virtual machine"
	}
	fmt.Printf("Linux %s %s, %d CPUs, %s, load average %s\n", unix.ByteSliceToString(u.Release[:]),
		runtime.GOARCH, runtime.NumCPU(), kind, strings.Fields(string(load) + " ?")[0])
}

const layout = "  %-44s %-22s"

func (b *bench) title(text string, columns ...string) {
	fmt.Printf("\n%s\n", text)
	fmt.Printf(layout, "", "target")
	for _, c := range columns {
		fmt.Printf(" %12s", c)
	}
	fmt.Println()
}

func (b *bench) row(name, target string, values ...string) {
	fmt.Printf(layout, name, target)
	for _, v := range values {
		fmt.Printf(" %12s", v)
	}
	fmt.Println()
}

func number(v float64) string {
	if v < 10 {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
