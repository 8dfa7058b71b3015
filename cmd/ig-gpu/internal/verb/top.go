// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/communicators"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/live"
)

// topFlags are the flags of top.
type topFlags struct {
	by, view string
	waste    bool
	timeout  time.Duration
}

func newTop(cfg Config) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top [PID...]",
		Short: "Watch which lines hold GPU memory, launch kernels, and wait",
		Long: "Show, live, the lines of Python that hold GPU memory, and behind Tab those that launch kernels and those\n" +
			"that wait for the GPU. Without a PID, all processes on this machine are traced. The keys are listed by ?.\n" +
			"Launches and waits are counted from when they are shown first. If the output is not a terminal, one\n" +
			"table is written at the end.",
		Example: "  ig-gpu top                       all processes that use CUDA\n" +
			"  ig-gpu top 4711                  one process and its children\n" +
			"  ig-gpu top 4711 --view waits     where it waits for the GPU\n" +
			"  ig-gpu top --by pod --timeout 30s > table.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			by, ok := top.Parse(f.by)
			if !ok {
				return fmt.Errorf("--by %s: want one of %s", f.by, strings.Join(top.Names(), ", "))
			}
			view, ok := viewNamed(f.view)
			if !ok {
				return fmt.Errorf("--view %s: want memory, launches or waits", f.view)
			}
			var pids []uint32
			if len(args) > 0 {
				var err error
				if pids, err = targets.Parse(args); err != nil {
					return err
				}
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			_, err := runTop(ctx, cfg, topRun{console: cfg.Console, pids: pids, by: by, views: topViews(view), timeout: f.timeout, memory: wasteFlags(f.waste)})
			return err
		},
	}
	cmd.Flags().StringVar(&f.by, "by", top.ByLine.String(), "What the rows are: "+strings.Join(top.Names(), ", "))
	cmd.Flags().StringVar(&f.view, "view", top.Memory.String(), "What is shown first: memory, launches or waits")
	cmd.Flags().BoolVar(&f.waste, "waste", false, "Also show what PyTorch's pool loses by line: rounding and fragmentation")
	cmd.Flags().VarP((*duration.Value)(&f.timeout), "timeout", "t", "Stop after this long, such as 30s")
	return cmd
}

// topRun is the input of runTop.
type topRun struct {
	console live.Console
	pids    []uint32
	by      top.By
	views   []top.View // the first is shown first
	timeout time.Duration
	logger  logger.Logger // nil: the program's
	memory  []engine.Flag // of the gadget of memory
	failed  func(error)   // called where launches and waits cannot be counted; nil: the screen warns
}

// runTop runs the vendor's gadget of memory, and that of launches from when one of its views is shown: its probes
// are the more expensive ones. The screen that it returns is closed.
func runTop(ctx context.Context, cfg Config, r topRun) (*live.Screen, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v, err := vendorOf(cfg.ProcFS, r.pids)
	if err != nil {
		return nil, err
	}
	var runs sync.WaitGroup
	var once sync.Once
	var screen *live.Screen
	run := func(gadget string, flags ...engine.Flag) error {
		if gadget == v.memory {
			flags = append(flagsOf(communicators.Name, "communicators", "auto"), flags...)
		}
		return cfg.Engine.Run(ctx, engine.Run{Gadget: gadget, Flags: flags, PIDs: r.pids, For: r.timeout, Logger: r.logger, Vars: map[string]any{live.VarScreen: screen}})
	}
	onView := func(view top.View) {
		if view == top.Memory {
			return
		}
		once.Do(func() {
			runs.Go(func() {
				if err := run(v.launches); err != nil && !errors.Is(err, context.Canceled) {
					err = fmt.Errorf("launches and waits are not counted: %w", err)
					screen.Warn(err.Error())
					if r.failed != nil {
						r.failed(err)
					}
				}
			})
		})
	}
	screen = live.NewScreen(live.ScreenConfig{Console: r.console, Title: "ig-gpu top", By: r.by, Views: r.views, Timeout: r.timeout, OnView: onView})
	defer screen.Abandon()
	onView(r.views[0])
	err = run(v.memory, r.memory...)
	cancel()
	runs.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	if err := screen.Close(); err != nil {
		return nil, err
	}
	return screen, nil
}

// topViews are the views of top, this one first.
func topViews(first top.View) []top.View {
	views := []top.View{top.Memory, top.Launches, top.Waits}
	at := slices.Index(views, first)
	return append(slices.Clone(views[at:]), views[:at]...)
}

// viewNamed is the view of a word.
func viewNamed(word string) (top.View, bool) {
	views := topViews(top.Memory)
	at := slices.IndexFunc(views, func(v top.View) bool { return v.String() == word })
	return views[max(at, 0)], at >= 0
}

// measureTop returns the rows and the status that top shows after this time.
func measureTop(ctx context.Context, cfg Config, pids []uint32, by top.By, view top.View, length time.Duration) ([]top.Value, string, error) {
	var failed error
	s, err := runTop(ctx, cfg, topRun{console: nowhere{}, pids: pids, by: by, views: topViews(view), timeout: length, logger: silent(),
		failed: func(err error) { failed = err }})
	if err := cmp.Or(err, failed); err != nil {
		return nil, "", err
	}
	rows, status := s.Result()
	return rows, status, nil
}
