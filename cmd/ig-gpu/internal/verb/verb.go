// SPDX-License-Identifier: Apache-2.0

// Package verb has the commands that answer one question each: which gadget is run, with
// which flags, is theirs to know and not the user's. One file is one verb.
package verb

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/help"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/console"
	"github.com/gpu-gadgets/gpu-gadgets/operators/show/live"
)

// Runner runs gadgets: *engine.Engine.
type Runner interface {
	Run(context.Context, engine.Run) error
}

// Terminal is where the user sits, if anybody does.
type Terminal interface {
	io.Writer
	// IsInteractive: standard input and output are a terminal in the foreground.
	IsInteractive() bool
	// Size is the number of columns and of lines; 0 where it is not known.
	Size() (columns, lines int)
}

// Config has the parts of the program that verbs need.
type Config struct {
	Engine   Runner
	Terminal Terminal
	// Console is the same terminal, for screens.
	Console live.Console
	// ProcFS is the host's procfs.
	ProcFS string
	// Machine has the facts that check tests.
	Machine Machine
	// Demo is the folder of the embedded workload, which demo runs.
	Demo fs.FS
}

// Commands are the verbs, in the order in which help lists them. A new verb is one line
// here.
func Commands(cfg Config) []*cobra.Command {
	cfg.Engine = inTyped{cfg.Engine}
	ask := []*cobra.Command{
		newExplain(cfg),
		newTop(cfg),
		newHangs(cfg),
		newDump(cfg),
		newRecord(cfg),
		newReport(),
		newDiff(),
		newLeaks(),
	}
	setUp := []*cobra.Command{
		newCheck(cfg),
		newDemo(cfg),
		newMCP(cfg),
		newMan(),
	}
	for _, cmd := range ask {
		cmd.GroupID = help.GroupAsk
		if strings.Contains(cmd.Use, "[PID...]") {
			cmd.ValidArgsFunction = completeProcesses(cfg)
		} else {
			cmd.ValidArgsFunction = completeProfiles
		}
	}
	for _, cmd := range setUp {
		cmd.GroupID = help.GroupSetUp
	}
	all := append(ask, setUp...)
	for _, cmd := range all {
		cmd.RunE = printing(cmd.RunE)
	}
	return all
}

// printing is a command that fails if its output cannot be written, as on a full disk.
func printing(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		out := &sticky{Writer: cmd.OutOrStdout()}
		cmd.SetOut(out)
		if err := run(cmd, args); err != nil {
			return err
		}
		if out.err != nil {
			return fmt.Errorf("print the result: %w", out.err)
		}
		return nil
	}
}

// sticky keeps the first error, of texts that are printed in many steps.
type sticky struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (s *sticky) Write(b []byte) (n int, err error) {
	if s.err == nil {
		n, s.err = s.Writer.Write(b)
	}
	return n, s.err
}

// inTyped has the flags that the user typed in errors, and not those of the gadget's run.
type inTyped struct{ Runner }

// Run implements Runner.
func (r inTyped) Run(ctx context.Context, run engine.Run) error {
	err := r.Runner.Run(ctx, run)
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "--pid: ", "") // processes are no flag of a verb
	for _, f := range run.Flags {
		if f.Typed != "" {
			text = strings.ReplaceAll(text, "--"+f.Name+": ", f.Typed+" "+f.Value+": ")
		}
	}
	if text == err.Error() {
		return err
	}
	return &reworded{err, text}
}

// reworded is an error with another text.
type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }

// interruptible is a context that Ctrl-C, SIGTERM and the terminal's end cancel: a run then writes its files.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, append(console.HangUp(), syscall.SIGINT, syscall.SIGTERM)...)
}

// flagsOf are those of one operator, as pairs of a name and a value.
func flagsOf(operator string, pairs ...string) (out []engine.Flag) {
	for n := 0; n+1 < len(pairs); n += 2 {
		out = append(out, engine.Flag{Operator: operator, Name: pairs[n], Value: pairs[n+1]})
	}
	return out
}

// textOrJSON checks the value of -o of verbs that print one table.
func textOrJSON(output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("-o %s: want text or json", output)
	}
	return nil
}

// writeLines writes values as JSON, one per line. `what` is what was done if that fails.
func writeLines[T any](w io.Writer, what string, all []T) error {
	encoder := json.NewEncoder(w)
	for _, value := range all {
		if err := encoder.Encode(value); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// exactly is cobra.ExactArgs with what is wanted in words.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		given := ""
		switch len(args) {
		case n:
			return nil
		case 0:
		case 1:
			given = " (1 argument was given)"
		default:
			given = fmt.Sprintf(" (%d arguments were given)", len(args))
		}
		return fmt.Errorf("%s: name %s%s", cmd.Name(), what, given)
	}
}
