// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
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
		Short: "Show which rank keeps the collectives of NCCL waiting, and on which line it is",
		Long: "Show how far each rank of NCCL is, and a verdict when others wait for one: which rank, since when, and\n" +
			"on which line of Python it is now. Without a process, all of this machine are traced. If a job hangs\n" +
			"already, its ranks call nothing any more: after 3 s their Python stacks are read and compared.",
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
			screen.Close()
			return nil
		},
	}
	cmd.Flags().Var((*duration.Value)(&f.hang), "hang", "Report a rank when others have waited for it for so long")
	cmd.Flags().VarP((*duration.Value)(&f.timeout), "timeout", "t", "End after so long, such as 30s")
	cmd.Flags().BoolVar(&f.ras, "ras", false, "Ask NCCL's own RAS service about each verdict")
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text, or json: one object per verdict")
	return cmd
}
