// SPDX-License-Identifier: Apache-2.0

package help

import (
	"fmt"
	"io"
)

// gadget is the first page of a gadget's help.
type gadget struct {
	name, answers string
	examples      []string
	flags         [][2]string
}

// common are the flags that all gadgets have, the most used first.
func common() [][2]string {
	return [][2]string{
		{"    --pid PID", "Only these processes and their children; several with commas or spaces"},
		{"    --host", "All processes of the machine (--pid implies it)"},
		{"-c, --containername N", "Only this container"},
		{"-t, --timeout TIME", "End by itself, such as 30s; otherwise Ctrl-C ends it"},
		{"-o, --output FORM", "columns, json, yaml or none; of one data source: allocs:json"},
	}
}

func gadgets() []gadget {
	return []gadget{
		{
			name:    "cuda_alloc",
			answers: "Which line of Python holds, takes and leaks GPU memory, to the byte, on a running process: no restart, no change to the code.",
			examples: []string{
				"ig-gpu run cuda_alloc --pid 4711",
				"ig-gpu run cuda_alloc --pid 4711 --timeout 30s --flamegraph-out memory.html",
				"ig-gpu run cuda_alloc --pid 4711 --mark-out mark --mark-every 10m",
			},
			flags: [][2]string{
				{"    --flamegraph-out F", "Write a flame graph (HTML)"},
				{"    --pprof-out FILE", "Write a pprof profile, for ig-gpu report and ig-gpu diff"},
				{"    --mark-out PATH", "Write a profile at each SIGUSR1, or key m"},
				{"    --older-than TIME", "Show what is held for longer than that"},
				{"    --torch on|off|auto", "Follow PyTorch's tensors, too"},
			},
		},
		{
			name:     "hip_alloc",
			answers:  "The same for AMD's GPUs: which line of Python holds, takes and leaks the memory that HIP allocated.",
			examples: []string{"ig-gpu run hip_alloc --pid 4711", "ig-gpu run hip_alloc --pid 4711 --timeout 30s --flamegraph-out memory.html", "ig-gpu run hip_alloc --pid 4711 --older-than 10m"},
			flags:    [][2]string{{"    --flamegraph-out F", "Write a flame graph (HTML)"}},
		},
		{
			name:    "cuda_kernel",
			answers: "Which line of Python launches kernels, copies and waits for the GPU, how often and for how long; and what happens when, as a timeline.",
			examples: []string{
				"ig-gpu run cuda_kernel --pid 4711",
				"ig-gpu run cuda_kernel --pid 4711 -t 10s --with all --timeline-html step.html",
				"ig-gpu run cuda_kernel --pid 4711 -t 30s --gpu-idle 10 --with python",
			},
			flags: [][2]string{
				{"    --timeline-html F", "Write a timeline (HTML)"},
				{"    --timeline-out FILE", "Write a trace for Perfetto (JSON, gzip)"},
				{"    --with LIST", "What threads did meanwhile: cpu, syscalls, memory, python, or all"},
				{"    --gpu-idle N", "Say at the end what the GPU waited for, N lines"},
				{"    --budget PERCENT", "The most CPU time that probes may take"},
			},
		},
		{
			name:     "hip_kernel",
			answers:  "The same for AMD's GPUs: which line of Python launches kernels, copies and waits, by the calls of HIP.",
			examples: []string{"ig-gpu run hip_kernel --pid 4711", "ig-gpu run hip_kernel --pid 4711 -t 10s --with all --timeline-html step.html", "ig-gpu run hip_kernel --pid 4711 --budget 1"},
			flags:    [][2]string{{"    --timeline-html F", "Write a timeline (HTML)"}},
		},
		{
			name:    "nccl_trace",
			answers: "Which rank keeps a collective of NCCL waiting, since when, and on which line it is.",
			examples: []string{
				"ig-gpu run nccl_trace --host",
				"ig-gpu run nccl_trace --host -o hangs:json",
				"ig-gpu run nccl_trace --host -t 10s --timeline-out trace.json.gz",
			},
			flags: [][2]string{
				{"    --hang TIME", "Say who is missing when others have waited for this long"},
				{"    --straggler TIME", "Report a rank that comes so much later than the others"},
				{"    --ras", "Ask NCCL's own RAS service about each verdict"},
				{"    --timeline-out FILE", "Write a trace for Perfetto (JSON, gzip)"},
				{"    --events-out FILE", "Write each operation (JSON lines, or .parquet)"},
			},
		},
		{
			name:    "py_stack",
			answers: "What every thread of a Python process is doing: its stack once (--mode dump), or sampled over time, without stopping it.",
			examples: []string{
				"ig-gpu run py_stack --pid 4711 --mode dump",
				"ig-gpu run py_stack --pid 4711 -t 30s --flamegraph-out cpu.html",
				"ig-gpu run py_stack --pid 4711 --wall --threads",
			},
			flags: [][2]string{
				{"    --mode dump", "Show each thread's stack once"},
				{"    --wall", "Sample all threads, also those that wait"},
				{"    --gil", "Sample only the thread that holds the GIL"},
				{"    --frequency N", "Samples per second (default 99)"},
				{"    --flamegraph-out F", "Write a flame graph (HTML)"},
			},
		},
	}
}

// Gadgets are the names of those that have a page.
func Gadgets() (names []string) {
	for _, g := range gadgets() {
		names = append(names, g.name)
	}
	return names
}

// WriteRun prints the page of the command that runs gadgets: which there are, and what each answers.
func WriteRun(w io.Writer) {
	fmt.Fprintln(w, Wrap("Run a gadget, with all its options. What it shows can also be written to files and sent to servers.", 0))
	fmt.Fprintln(w, "\nUsage: ig-gpu run GADGET [flags]\n\nGadgets:")
	all := gadgets()
	for _, g := range all {
		entry(w, "  "+g.name, g.answers)
	}
	fmt.Fprintln(w, "\nExamples:")
	for _, g := range all {
		fmt.Fprintf(w, "  %s\n", g.examples[0])
	}
	fmt.Fprintf(w, "\nig-gpu run GADGET --help: its most used flags; --%s: all flags and fields\n", All)
}

// WriteGadget prints the page of a gadget; false where there is none.
func WriteGadget(w io.Writer, name string) bool {
	for _, g := range gadgets() {
		if g.name != name {
			continue
		}
		fmt.Fprintln(w, Wrap(g.answers, 0))
		fmt.Fprintf(w, "\nUsage: ig-gpu run %s [flags]\n\nExamples:\n", name)
		for _, e := range g.examples {
			fmt.Fprintf(w, "  %s\n", e)
		}
		fmt.Fprintln(w, "\nFlags:")
		for _, f := range append(common(), g.flags...) {
			entry(w, "  "+f[0], f[1])
		}
		fmt.Fprintf(w, "\nig-gpu run %s --%s: all flags and fields\n", name, All)
		return true
	}
	return false
}
