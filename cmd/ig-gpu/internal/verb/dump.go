// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/pystack"
)

func newDump(cfg Config) *cobra.Command {
	var output string
	var odd, native bool
	var frozenFor time.Duration
	cmd := &cobra.Command{
		Use:   "dump [PID...]",
		Short: "Show what every Python thread of a process is doing now",
		Long: "Show the stack of every Python thread of a process once, with the state of the thread: its name,\n" +
			"whether it runs, waits, or holds the GIL, and in which system call. The process is not stopped.",
		Example: "  ig-gpu dump 4711                 one process and its children\n" +
			"  ig-gpu dump \"$(pgrep -f train)\"  all that pgrep finds\n" +
			"  ig-gpu dump 4711 --odd           which ranks of a job are the outliers\n" +
			"  ig-gpu dump 4711 --frozen 10s    does it still move? If not, what it waits for\n" +
			"  ig-gpu dump 4711 --native        with the native frames that Python has called\n" +
			"  ig-gpu dump 4711 -o json         one JSON object per thread",
		RunE: func(cmd *cobra.Command, args []string) error {
			format := "text"
			switch output {
			case "text":
			case "json":
				format = "rows"
			default:
				return fmt.Errorf("-o %s: want text or json", output)
			}
			if cmd.Flags().Changed("frozen") && frozenFor < minCompared {
				return fmt.Errorf("--frozen %s: want at least %s, for dumps are taken a second apart and compared", frozenFor, minCompared)
			}
			pids, err := pids(cfg, cmd, args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			if native && (odd || frozenFor > 0) {
				return errors.New("--native: --odd and --frozen compare stacks of Python; dump the processes that they name with --native")
			}
			if odd && frozenFor > 0 {
				return errors.New("--odd and --frozen: use one of them, for the first compares processes with each other and the second each with itself")
			}
			if cmd.Flags().Changed("frozen") {
				return dumpFrozen(ctx, cfg, pids, frozenFor, cmd.OutOrStdout(), output == "json")
			}
			if odd {
				return dumpOdd(ctx, cfg, pids, cmd.OutOrStdout(), output == "json")
			}
			run := engine.Run{Gadget: "py_stack", PIDs: pids, Flags: flagsOf("pystack", "mode", "dump", "format", format)}
			if native {
				run.Flags = append(run.Flags, flagsOf("unwind", "native-stacks", "all")...)
			}
			if output == "json" {
				run.Print, run.Output = true, "json"
			}
			return cfg.Engine.Run(ctx, run)
		},
	}
	cmd.Flags().BoolVar(&native, "native", false, "Also show native frames: which function of a library a line of Python waits in")
	cmd.Flags().BoolVar(&odd, "odd", false, "Group the ranks of a job by the stack of their main thread, and show the outliers")
	cmd.Flags().Var((*duration.Value)(&frozenFor), "frozen", "Compare the stacks for this long, at least 2s, and show the processes that do not move, what they wait for, and which of them wait for each other")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, as py-spy dump prints it, or json")
	return cmd
}

// thread is a row of a dump for programs.
type thread struct {
	PID     uint32 `json:"pid"`
	TID     uint32 `json:"tid"`
	Process string `json:"process"`
	Name    string `json:"name"`
	State   string `json:"state" jsonschema:"running, runnable, sleeping, blocked (signals do not wake it) or stopped"`
	Syscall string `json:"syscall,omitempty" jsonschema:"system call that it sleeps in"`
	GIL     string `json:"gil,omitempty" jsonschema:"held, waiting, not held or unknown"`
	// Stack is the program's start first.
	Stack []string `json:"stack" jsonschema:"outermost frame first, the innermost, where it is now, last"`
	// User is the innermost frame of the program's own code.
	User      string `json:"-"`
	FramesCut int    `json:"frames_cut" jsonschema:"frames left out"`
}

// dumpThreads is the dump of processes and their children.
func dumpThreads(ctx context.Context, cfg Config, pids []uint32) (all []thread, err error) {
	var mu sync.Mutex
	on := func(ds datasource.DataSource, rows []datasource.Data) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range rows {
			t := thread{PID: small(ds, r, "proc.pid"), TID: small(ds, r, "proc.tid"), Process: text(ds, r, "proc.comm"), Name: text(ds, r, "thread"),
				State: text(ds, r, "state"), Syscall: text(ds, r, "syscall"), GIL: text(ds, r, "gil"), User: text(ds, r, "user_frame")}
			if stack := text(ds, r, "stack"); stack != "" && number(ds, r, "stack_id") != 0 {
				t.Stack = strings.Split(stack, "; ")
			}
			all = append(all, t)
		}
	}
	err = cfg.Engine.Run(ctx, engine.Run{Gadget: "py_stack", PIDs: pids, Logger: silent(), Flags: flagsOf("pystack", "mode", "dump", "format", "rows"),
		Operators: []operators.DataOperator{engine.Rows(pystack.DataSource, on)}})
	mu.Lock()
	defer mu.Unlock()
	return all, err
}
