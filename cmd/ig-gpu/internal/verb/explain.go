// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/communicators"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
)

func newExplain(cfg Config) *cobra.Command {
	var output string
	var waste bool
	watch := duration.Value(10 * time.Second)
	cmd := &cobra.Command{
		Use:   "explain [PID...]",
		Short: "Say what a process does with the GPU, and which line to blame",
		Long: "Watch a process for some seconds and say in one page: who holds GPU memory, what grew, what was refused,\n" +
			"what threads and the GPU waited for, and which rank is missing. Each sentence has its figure and the command\n" +
			"that shows more. The last part says what is unknown.",
		Example: "  ig-gpu explain 4711\n" +
			"  ig-gpu explain 4711 --for 1m          longer: what grows slowly\n" +
			"  ig-gpu explain 4711 -o json           one JSON object per sentence",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := textOrJSON(output); err != nil {
				return err
			}
			if time.Duration(watch) < 2*time.Second {
				return errors.New("--for: want at least 2s: what grew takes two readings")
			}
			pids, err := pids(cfg, cmd, args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			fmt.Fprintf(cmd.ErrOrStderr(), "Watching process %s for %s (Ctrl-C ends it sooner)\n", joined(pids), time.Duration(watch))
			facts, err := observe(ctx, cfg, pids, time.Duration(watch), wasteFlags(waste)...)
			if err != nil {
				return err
			}
			return writeSentences(cmd.OutOrStdout(), compose(facts), output == "json")
		},
	}
	cmd.Flags().Var(&watch, "for", "How long to watch, such as 10s or 1m")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&waste, "waste", false, wasteUsage)
	return cmd
}

const wasteUsage = "Also say which lines lose memory of PyTorch's pool to rounding and fragmentation"

// wasteFlags are those of the gadget of memory: of sampled tensors, fragmentation is not known.
func wasteFlags(on bool) []engine.Flag {
	if !on {
		return nil
	}
	return flagsOf("torch", "waste", "true", "torch", "on")
}

// observe runs the gadgets side by side and collects what their rows say. The flags are for that
// of memory.
func observe(ctx context.Context, cfg Config, pids []uint32, duration time.Duration, memory ...engine.Flag) (*facts, error) {
	v, err := vendorOf(cfg.ProcFS, pids)
	if err != nil {
		return nil, err
	}
	f := newFacts(pids, duration)
	f.vendor = v
	hasNCCL := false
	for _, pid := range pids {
		f.commands = append(f.commands, targets.Command(cfg.ProcFS, pid))
	}
	for _, pid := range family(cfg.ProcFS, pids...) {
		libraries, _ := targets.Libraries(cfg.ProcFS, pid) // none of one that has ended
		if mapped(libraries, v.library) != "" {
			f.users = append(f.users, pid)
		}
		f.hasPython = f.hasPython || isPython(libraries)
		hasNCCL = hasNCCL || hasCollectives(libraries)
	}
	f.counted(cfg)
	runs := []engine.Run{
		{Gadget: v.memory, Flags: slices.Concat(flagsOf(communicators.Name, "communicators", "auto"), flagsOf("oci", "annotate", readings(duration)), memory), Operators: []operators.DataOperator{
			engine.Rows("allocs", f.allocs), engine.Rows(communicators.Source, f.buffers), engine.Rows("ooms", f.ooms), engine.Rows("drops", f.dropsOf(v.memory)), engine.Started(f.started)}},
		{Gadget: v.launches, Flags: flagsOf("timeline", "gpu-idle", "5"), Logger: collecting(f), Operators: []operators.DataOperator{
			engine.Rows("calls", f.calls), engine.Rows("drops", f.dropsOf(v.launches))}},
	}
	if hasNCCL {
		runs = append(runs, engine.Run{Gadget: "nccl_trace", Operators: []operators.DataOperator{engine.Rows(ranks.Hangs, f.hangs)}})
	}
	holders, ends := watchHolders(cfg, f), watchEnds(cfg.ProcFS, pids)
	errs := make([]error, len(runs))
	var wait sync.WaitGroup
	for n, run := range runs {
		run.PIDs, run.For = pids, duration
		if run.Logger == nil {
			run.Logger = silent()
		}
		wait.Go(func() { errs[n] = cfg.Engine.Run(ctx, run) })
	}
	wait.Wait()
	f.finish(time.Now(), ctx.Err() != nil, ends())
	f.holders = holders()
	f.refused.others = neighbours(cfg, f.counted(cfg)) // with what the watch saw them take
	if errs[0] != nil {
		return nil, errs[0]
	}
	for n, err := range errs[1:] { // the memory is explained all the same
		if err != nil {
			f.failed = append(f.failed, fmt.Sprintf("%s did not run: %v", runs[n+1].Gadget, err))
		}
	}
	return f, nil
}

// readings is how often the rows of memory are read: some dozens of times, for their lows.
func readings(watch time.Duration) string {
	return fmt.Sprintf("allocs:fetch-interval=%v", min(max(watch/40, 250*time.Millisecond), time.Second))
}

// counted reads the memory that the vendor's driver counts for the processes and their descendants. What it counted for
// processes that have ended stays. The result is what it counts for the others.
func (f *facts) counted(cfg Config) (others map[uint32]uint64) {
	byGPU, watched := memoryByGPU(cfg), f.processes()
	for _, pid := range family(cfg.ProcFS, f.pids...) {
		watched[pid] = true
	}
	others = summed(byGPU)
	sum := int64(0)
	for pid := range watched {
		if others[pid] > 0 {
			sum += int64(others[pid])
			f.used[pid] = byGPU[pid]
		}
		delete(others, pid)
	}
	if sum > 0 {
		f.driver = sum
	}
	return others
}

// processes are those that are known to be watched: named by the user, using the GPU when the watch began, or in the rows.
// Descendants of one that has ended have another parent.
func (f *facts) processes() map[uint32]bool {
	all := map[uint32]bool{}
	for _, pid := range slices.Concat(f.pids, f.users) {
		all[pid] = true
	}
	for _, known := range f.peaks.rows {
		all[known.row.Process.PID] = true
	}
	return all
}

// silent discards the messages of runs that the user did not start by name: what they find is in
// the sentences.
func silent() logger.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

// collecting keeps what the GPU waited for, which is logged at the end of the run.
func collecting(f *facts) logger.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.AddHook(idleLines{f})
	return l
}

// idleLines is a hook that reads the lines of --gpu-idle.
type idleLines struct{ f *facts }

// Levels implements logrus.Hook.
func (idleLines) Levels() []logrus.Level { return []logrus.Level{logrus.InfoLevel} }

// Fire implements logrus.Hook.
func (i idleLines) Fire(e *logrus.Entry) error {
	i.f.mu.Lock()
	defer i.f.mu.Unlock()
	// The table's lines are indented; what else is logged is not. Without a gap there is another line.
	if strings.HasPrefix(e.Message, "what the GPU waited for, an estimate: streams") || len(i.f.idle) > 0 && strings.HasPrefix(e.Message, " ") {
		i.f.idle = append(i.f.idle, e.Message)
	}
	return nil
}

// writeSentences prints the page, or a line of JSON for each sentence.
func writeSentences(w io.Writer, all []sentence, asJSON bool) error {
	if asJSON {
		return writeLines(w, "print the explanation", all)
	}
	last := ""
	for _, s := range all {
		if s.Part != last {
			if last != "" {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, s.Part)
			last = s.Part
		}
		for n, line := range strings.Split(screen.CleanLines(s.Text), "\n") {
			lead := "    "
			if n == 0 {
				lead = "  - "
			}
			fmt.Fprintln(w, lead+line)
		}
		if s.More != "" {
			fmt.Fprintln(w, "    more: "+s.More)
		}
	}
	return nil
}
