// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/live"
)

// onlyHangs has one JSON object per verdict, and no other rows.
const onlyHangs = "hangs:json,collectives:none,communicators:none,peers:none,operations:none,operation_events:none,attachments:none,drops:none"

// hangsFlags are the flags of hangs.
type hangsFlags struct {
	hang, timeout time.Duration
	output        string
	ras           bool
}

func newHangs(cfg Config) *cobra.Command {
	f := hangsFlags{hang: 10 * time.Second}
	cmd := &cobra.Command{
		Use:   "hangs [PID...]",
		Short: "Show which rank keeps a collective waiting, and on which line",
		Long: "Show how far each rank of NCCL is, and a verdict when others wait for one: which rank, since when, and\n" +
			"on which line of Python it is now. Without a PID, all processes on this machine are traced. If a job hangs\n" +
			"already, its ranks call nothing any more: after 1.5 s their Python stacks are read and compared.",
		Example: "  ig-gpu hangs                     all ranks of this machine\n" +
			"  ig-gpu hangs 4711 4712           two processes and their children\n" +
			"  ig-gpu hangs --hang 60s          a wait of a minute is a hang\n" +
			"  ig-gpu hangs --timeout 30s -o json   one JSON object per verdict",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.output != "text" && f.output != "json" {
				return fmt.Errorf("-o %s: want text or json", f.output)
			}
			if f.hang <= 0 {
				return fmt.Errorf("--hang %v: want a duration such as 30s", f.hang)
			}
			r := engine.Run{Gadget: "nccl_trace", For: f.timeout, Flags: flagsOf("ranks", "hang", f.hang.String())}
			if f.ras {
				r.Flags = append(r.Flags, flagsOf("ranks", "ras", "true")...)
			}
			if len(args) > 0 {
				var err error
				if r.PIDs, err = targets.Parse(args); err != nil {
					return err
				}
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			if f.output == "json" {
				r.Print, r.Output = true, onlyHangs
				return cfg.Engine.Run(ctx, r)
			}
			screen := live.NewScreen(live.ScreenConfig{Console: cfg.Console, Title: "ig-gpu hangs", Timeout: f.timeout})
			defer screen.Abandon()
			r.Vars = map[string]any{live.VarScreen: screen}
			if err := cfg.Engine.Run(ctx, r); err != nil {
				return err
			}
			return screen.Close()
		},
	}
	cmd.Flags().Var((*duration.Value)(&f.hang), "hang", "Report a rank when others have waited for it for this long")
	cmd.Flags().VarP((*duration.Value)(&f.timeout), "timeout", "t", "Stop after this long, such as 30s")
	cmd.Flags().BoolVar(&f.ras, "ras", false, "Ask NCCL's own RAS service about each verdict")
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text, or json: one object per verdict")
	return cmd
}

// hang is a verdict for programs.
type hang struct {
	Event   string `json:"event" jsonschema:"found, changed, cleared, or late: judged by stacks alone"`
	Reason  string `json:"reason" jsonschema:"missing, mismatch, unmatched, straggler, dead, slow, inside, slowdown, elsewhere or late"`
	Text    string `json:"text" jsonschema:"the verdict, with what is uncertain"`
	Rank    int32  `json:"rank" jsonschema:"first rank at fault; -1: unknown"`
	PID     uint32 `json:"pid,omitempty"`
	Process string `json:"process,omitempty"`
	State   string `json:"state,omitempty"`
	Line    string `json:"line,omitempty" jsonschema:"where it is now"`
	Waited  uint64 `json:"waited_ns"`
}

// rank is how far one is, for programs.
type rank struct {
	Rank         int32  `json:"rank"`
	Size         int32  `json:"size"`
	Communicator string `json:"communicator"`
	PID          uint32 `json:"pid"`
	Process      string `json:"process"`
	Issued       uint64 `json:"issued" jsonschema:"collectives that it has issued"`
	Done         uint64 `json:"done" jsonschema:"of these, known to be complete"`
	Waits        uint64 `json:"waits_ns"`
	State        string `json:"state"`
	Verdict      string `json:"verdict,omitempty"`
	Line         string `json:"line,omitempty"`
}

// measureHangs are the verdicts of a while, and the ranks at its end.
func measureHangs(ctx context.Context, cfg Config, pids []uint32, after, length time.Duration) (verdicts []hang, all []rank, err error) {
	var mu sync.Mutex
	onHang := func(ds datasource.DataSource, rows []datasource.Data) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range rows {
			verdicts = append(verdicts, hang{
				Event: text(ds, r, "event"), Reason: text(ds, r, "reason"), Text: text(ds, r, "text"), Rank: signed(ds, r, "rank"),
				PID: small(ds, r, "proc.pid"), Process: text(ds, r, "proc.comm"), State: text(ds, r, "state"),
				Line: cmp.Or(text(ds, r, "user_line"), text(ds, r, "line")), Waited: number(ds, r, "waited_ns"),
			})
		}
	}
	onRanks := func(ds datasource.DataSource, rows []datasource.Data) {
		mu.Lock()
		defer mu.Unlock()
		all = nil
		for _, r := range rows {
			all = append(all, rank{
				Rank: signed(ds, r, "rank"), Size: signed(ds, r, "size"), Communicator: cmp.Or(text(ds, r, "name"), text(ds, r, "communicator")),
				PID: small(ds, r, "proc.pid"), Process: text(ds, r, "proc.comm"), Issued: number(ds, r, "issued"), Done: number(ds, r, "done"),
				Waits: number(ds, r, "waits_ns"), State: text(ds, r, "state"), Verdict: text(ds, r, "verdict"), Line: text(ds, r, "where"),
			})
		}
	}
	err = cfg.Engine.Run(ctx, engine.Run{Gadget: "nccl_trace", PIDs: pids, For: length, Logger: silent(), Flags: flagsOf("ranks", "hang", after.String()),
		Operators: []operators.DataOperator{engine.Rows(ranks.Hangs, onHang), engine.Rows("collectives", onRanks)}})
	mu.Lock()
	defer mu.Unlock()
	return verdicts, all, err
}
