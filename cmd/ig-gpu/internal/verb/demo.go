// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"errors"
	"fmt"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/demo"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
)

// demoSpare is how much longer than the watch the workload lives, at most.
const demoSpare = 30 * time.Second

func newDemo(cfg Config) *cobra.Command {
	var flame string
	var native bool
	watch := duration.Value(10 * time.Second)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Find the leak of a small server, without a GPU",
		Long: "Start a server that leaks memory of a simulated GPU, watch it for some seconds with cuda_alloc, and name\n" +
			"the line that leaks. Only the GPU's driver is simulated: the gadget is the real one, in the real kernel.\n" +
			"Nothing but this program is needed; the server is removed at the end.",
		Example: "  sudo ig-gpu demo\n" +
			"  sudo ig-gpu demo -o leak.html          and write a flame graph\n" +
			"  sudo ig-gpu demo --native              the server in C, also where Python is",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cfg.Machine.IsRoot {
				return errors.New("demo: the gadget needs root: eBPF programs may only be loaded by root, run it with sudo")
			}
			return runDemo(cmd, cfg, time.Duration(watch), native, flame)
		},
	}
	cmd.Flags().Var(&watch, "for", "How long to watch, such as 10s")
	cmd.Flags().BoolVar(&native, "native", false, "Do not use Python")
	cmd.Flags().StringVarP(&flame, "output", "o", "", "Also write a flame graph (HTML) to this file")
	return cmd
}

func runDemo(cmd *cobra.Command, cfg Config, duration time.Duration, native bool, flame string) error {
	ctx, stop := interruptible(cmd)
	defer stop()
	workload, err := demo.Start(cfg.Demo, duration+demoSpare, !native)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer workload.Stop()
	f := newFacts([]uint32{workload.PID}, duration)
	run := engine.Run{
		Gadget: "cuda_alloc", PIDs: f.pids, For: duration, Logger: silent(),
		Operators: []operators.DataOperator{engine.Rows("allocs", f.allocs), engine.Rows("drops", f.dropsOf("cuda_alloc"))},
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Started %s on a simulated GPU, as process %d.\nRunning for %s: %s\n\n", workload.What, workload.PID, duration, run.Command())
	if flame != "" {
		run.Flags = []engine.Flag{{Operator: "sink", Name: "flamegraph-out", Value: flame, Typed: "-o"}}
	}
	if err := cfg.Engine.Run(ctx, run); err != nil {
		return err
	}
	p := &page{}
	composeMemory(p, f, fmt.Sprint(workload.PID))
	composeBlame(p, f, f.outcomes(), fmt.Sprint(workload.PID))
	for n := range p.all {
		p.all[n].More = "" // the process is gone when it is read
	}
	if err := writeSentences(cmd.OutOrStdout(), p.all, false); err != nil {
		return err
	}
	if f.read == 0 {
		return fmt.Errorf("demo: no rows came; the server said: %s", workload.Said())
	}
	if flame != "" {
		nameWritten(cmd.ErrOrStderr(), []written{{flame, format{what: "flame graph: open it in a browser"}}})
	}
	fmt.Fprintln(cmd.OutOrStdout(), "\nNow your own: sudo ig-gpu check PID; sudo ig-gpu explain PID; sudo ig-gpu record PID -o memory.html")
	return nil
}
