// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	log "github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/help"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/images"
)

// request has the parts of a command line that are decided before the commands exist.
type request struct {
	args   []string
	gadget string // whose help is requested by `run GADGET --help`; empty: none
	all    bool   // --help-all
}

// helpOf reports whether the command line requests help of `run`. Inspektor Gadget's own help of a gadget
// is hundreds of lines, and takes root.
func helpOf(args []string) request {
	r := request{args: args}
	at := slices.Index(args, "run")
	if at < 0 {
		if slices.Contains(args, "--"+help.All) {
			r.args = append(slices.Clone(args), "--help")
		}
		return r
	}
	rest := args[at+1:]
	if end := slices.Index(rest, "--"); end >= 0 {
		rest = rest[:end]
	}
	asked := slices.Contains(rest, "--help") || slices.Contains(rest, "-h")
	r.all = slices.Contains(rest, "--"+help.All)
	for _, word := range rest {
		if (asked || r.all) && slices.Contains(help.Gadgets(), word) {
			r.gadget = word
			break
		}
	}
	if r.all { // what Inspektor Gadget looks for
		r.args = slices.Concat(args[:at+1], slices.DeleteFunc(slices.Clone(args[at+1:]), func(a string) bool { return a == "--help" || a == "-h" }))
		for n, a := range r.args {
			if a == "--"+help.All {
				r.args[n] = "--help"
			}
		}
	}
	return r
}

// quietHelp: help is for anybody; that the operators cannot be prepared for a run does not
// matter to it.
func quietHelp() { log.SetOutput(io.Discard) }

// dress gives the command tree its help, versions, and what a shell completes.
func dress(root, run *cobra.Command, set images.Set, r request) {
	help.Install(root)
	cobra.EnableCommandSorting = false // the order is by what a user asks first
	root.Version = version
	root.SetVersionTemplate("ig-gpu {{.Version}}\n")
	root.Long = "Which line of Python holds the GPU's memory, launches its kernels, and keeps a collective waiting:\n" +
		"on a running process, without restart or change."
	root.Example = "  ig-gpu check                       what works on this machine\n" +
		"  ig-gpu explain 4711                what a process does with the GPU\n" +
		"  ig-gpu run cuda_alloc --pid 4711   who holds GPU memory, live"
	run.GroupID = help.GroupRun
	run.Short = "Run a gadget, with all its options"
	run.ValidArgsFunction = completeRun(set)
	run.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		gadget := cmd.Flags().Args()
		if len(gadget) == 0 && !r.all {
			help.WriteRun(cmd.OutOrStdout())
			return
		}
		if r.all {
			cmd.Long = "All flags of " + strings.Join(append([]string{"run"}, gadget...), " ") + ". The first page: --help"
		}
		help.Write(cmd.OutOrStdout(), cmd, r.all)
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return suggested(cmd, err) })
}

var unknownFlag = regexp.MustCompile(`^unknown flag: --([^ =]+)`)

// unknown is an error about a flag, with those that are meant perhaps.
type unknown struct {
	error
	near []string
}

func (u *unknown) Error() string {
	return u.error.Error() + ". Did you mean --" + strings.Join(u.near, " or --") + "?"
}
func (u *unknown) Unwrap() error { return u.error }

// hinted is an error with what to type instead.
type hinted struct {
	error
	text string
}

func (h *hinted) Error() string { return h.text }
func (h *hinted) Unwrap() error { return h.error }

// synonyms are names that other tools have for flags of ours.
var synonyms = map[string][]string{
	"duration": {"for", "timeout"}, "seconds": {"for", "timeout"}, "time": {"for", "timeout"}, "timeout": {"for"}, "for": {"timeout"},
	"rate": {"frequency"}, "idle": {"wall"},
	"format": {"output"}, "file": {"output"}, "out": {"output"}, "json": {"output"},
}

// suggested adds to the error about an unknown flag or command those with a name like it, or one that means the same.
func suggested(cmd *cobra.Command, err error) error {
	var already *unknown
	var hint *hinted
	if err == nil || cmd == nil || errors.As(err, &already) || errors.As(err, &hint) {
		return err
	}
	if text, near, ok := strings.Cut(err.Error(), "Did you mean this?"); ok && strings.HasPrefix(text, "unknown command") { // cobra's
		return &hinted{err, strings.TrimSpace(text) + ". Did you mean " + strings.Join(strings.Fields(near), " or ") + "?"}
	}
	isPID := strings.HasPrefix(err.Error(), "unknown shorthand flag: 'p' in -p")
	m := unknownFlag.FindStringSubmatch(err.Error())
	if m != nil {
		isPID = m[1] == "pid"
	}
	if isPID && strings.Contains(cmd.Use, "[PID...]") {
		return &hinted{err, fmt.Sprintf("%v. Name processes without a flag: %s 4711", err, cmd.CommandPath())}
	}
	if m == nil {
		return err
	}
	near := flagsLike(cmd, m[1])
	if len(near) == 0 {
		return err
	}
	return &unknown{err, near}
}

// flagsLike are at most three flags of a command.
func flagsLike(cmd *cobra.Command, name string) []string {
	// cobra compares names of commands.
	names := &cobra.Command{SuggestionsMinimumDistance: 2}
	var same []string
	add := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		if slices.Contains(synonyms[name], f.Name) {
			same = append(same, f.Name)
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	near := same
	if len(near) == 0 {
		near = names.SuggestionsFor(name)
	}
	slices.Sort(near)
	near = slices.Compact(near)
	return near[:min(len(near), 3)]
}

// completeRun offers gadgets, and then the flags that operators have. Flags of the gadget's
// own image are known only when it is read, which takes root.
func completeRun(set images.Set) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if !strings.HasPrefix(typed, "-") {
			if slices.ContainsFunc(args, set.Has) {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return set.Names(), cobra.ShellCompDirectiveNoFileComp
		}
		known := map[string]string{"--output": "columns, json, yaml or none", "--fields": "Columns to show", "--help": "One page", "--" + help.All: "All flags"}
		for _, operator := range operators.GetDataOperators() {
			for _, p := range operator.InstanceParams() {
				known["--"+p.Key] = p.Description
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = f.Usage })
		var out []cobra.Completion
		for name, text := range known {
			if strings.HasPrefix(name, typed) {
				line, _, _ := strings.Cut(text, "\n")
				out = append(out, cobra.CompletionWithDesc(name, line))
			}
		}
		slices.Sort(out)
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
