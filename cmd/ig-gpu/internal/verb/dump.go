// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
)

func newDump(cfg Config) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "dump [PID...]",
		Short: "Show what every Python thread of a process is doing now",
		Long: "Show the stack of every Python thread of a process once, with the state of the thread: its name,\n" +
			"whether it runs, waits, or holds the GIL, and in which system call. The process is not stopped.",
		Example: "  ig-gpu dump 4711                 one process and its children\n" +
			"  ig-gpu dump \"$(pgrep -f train)\"  all that pgrep finds\n" +
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
			pids, err := pids(cfg, cmd, args)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			run := engine.Run{Gadget: "py_stack", PIDs: pids, Flags: flagsOf("pystack", "mode", "dump", "format", format)}
			if output == "json" {
				run.Print, run.Output = true, "json"
			}
			return cfg.Engine.Run(ctx, run)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, as py-spy dump prints it, or json")
	return cmd
}
