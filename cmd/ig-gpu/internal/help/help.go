// SPDX-License-Identifier: Apache-2.0

// Package help prints what fits a screen: for a gadget, the question that it answers,
// three examples and the ten flags that are used most; for a verb, the same from its
// command. --help-all has the rest, in groups.
package help

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// All is the flag for all flags.
	All = "help-all"
	// Width is that of the text: a terminal's.
	Width = 80
	// indent of what explains a flag or a command.
	indent = 26
)

// Groups of the commands, as the top-level help lists them.
const (
	GroupAsk   = "ask"
	GroupSetUp = "setup"
	GroupRun   = "run"
)

// Install has root and all of its commands print this help.
func Install(root *cobra.Command) {
	root.AddGroup(&cobra.Group{ID: GroupAsk, Title: "Ask about a process or a file"},
		&cobra.Group{ID: GroupSetUp, Title: "Set up"}, &cobra.Group{ID: GroupRun, Title: "Gadgets"})
	root.PersistentFlags().Bool(All, false, "Show all flags")
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		all, _ := cmd.Flags().GetBool(All)
		Write(cmd.OutOrStdout(), cmd, all)
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		Write(cmd.OutOrStderr(), cmd, false)
		return nil
	})
}

// Write prints the help of a command.
func Write(w io.Writer, cmd *cobra.Command, all bool) {
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintln(w, Wrap(strings.ReplaceAll(text, "\n", " "), 0))
	use := strings.TrimSuffix(cmd.UseLine(), " [flags]") + " [flags]"
	if cmd.HasAvailableSubCommands() {
		use = cmd.CommandPath() + " COMMAND [flags]"
	}
	fmt.Fprintf(w, "\nUsage: %s\n", use)
	if cmd.HasAvailableSubCommands() {
		writeCommands(w, cmd)
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if cmd.HasParent() && f.Name != All && f.Name != "help" {
			own.AddFlag(f)
		}
	})
	if !all {
		if own.HasAvailableFlags() {
			fmt.Fprintln(w, "\nFlags:")
			WriteFlags(w, own, nil)
		}
		fmt.Fprintf(w, "\n%s --%s: all flags\n", cmd.CommandPath(), All)
		return
	}
	every := pflag.NewFlagSet("", pflag.ContinueOnError)
	every.AddFlagSet(cmd.LocalFlags())
	every.AddFlagSet(cmd.InheritedFlags())
	writeGroups(w, every)
}

// writeCommands lists the commands by group, each in one line.
func writeCommands(w io.Writer, cmd *cobra.Command) {
	list := func(title, id string) {
		first := true
		for _, c := range cmd.Commands() {
			if !c.IsAvailableCommand() || c.GroupID != id {
				continue
			}
			if first {
				fmt.Fprintf(w, "\n%s:\n", title)
				first = false
			}
			fmt.Fprintf(w, "  %-15s %s\n", c.Name(), cut(c.Short, Width-18))
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	title := "Commands"
	if len(cmd.Groups()) > 0 {
		title = "From Inspektor Gadget"
	}
	list(title, "")
}

func cut(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

// WriteFlags lists flags: those of names in that order, or all by name.
func WriteFlags(w io.Writer, flags *pflag.FlagSet, names []string) {
	write := func(f *pflag.Flag) {
		if f == nil || f.Hidden {
			return
		}
		lead := "      --" + f.Name
		if f.Shorthand != "" {
			lead = "  -" + f.Shorthand + ", --" + f.Name
		}
		if kind := kindOf(f); kind != "" {
			lead += " " + kind
		}
		text := f.Usage
		if d := f.DefValue; !slices.Contains([]string{"", "false", "[]", "0", "0s"}, d) && len(d) <= 40 {
			text += " (default " + d + ")"
		}
		entry(w, lead, text)
	}
	if names == nil {
		flags.VisitAll(write)
		return
	}
	for _, name := range names {
		write(flags.Lookup(name))
	}
}

func kindOf(f *pflag.Flag) string {
	switch kind := f.Value.Type(); kind {
	case "bool":
		return ""
	case "stringArray", "stringSlice":
		return "FILE"
	case "duration":
		return "TIME"
	case "int", "float64", "uint64", "uint32", "int32":
		return "N"
	default:
		return "TEXT"
	}
}

// entry is a name and what it means, which begins on the same line if there is room.
func entry(w io.Writer, lead, text string) {
	var lines []string
	for n, paragraph := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if n > 0 { // a list, such as that of all fields: as it is
			lines = append(lines, strings.Repeat(" ", indent)+strings.TrimRight(paragraph, " "))
			continue
		}
		lines = append(lines, strings.Split(Wrap(paragraph, indent), "\n")...)
	}
	if len([]rune(lead)) < indent-1 {
		fmt.Fprintf(w, "%-*s%s\n", indent, lead, strings.TrimLeft(lines[0], " "))
		lines = lines[1:]
	} else {
		fmt.Fprintln(w, lead)
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
}

// Wrap breaks text into lines of Width columns, each with so many spaces before it.
func Wrap(text string, before int) string {
	var out strings.Builder
	column := 0
	for n, word := range strings.Fields(text) {
		length := len([]rune(word))
		switch {
		case n == 0:
			out.WriteString(strings.Repeat(" ", before))
			column = before
		case column+1+length > Width:
			out.WriteString("\n" + strings.Repeat(" ", before))
			column = before
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += length
	}
	return out.String()
}

// group of flags for --help-all.
type group struct {
	title string
	has   func(name string) bool
}

func oneOf(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

func groups() []group {
	ends := func(suffixes ...string) func(string) bool {
		return func(name string) bool {
			return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
		}
	}
	begins := func(prefixes ...string) func(string) bool {
		return func(name string) bool {
			return slices.ContainsFunc(prefixes, func(s string) bool { return strings.HasPrefix(name, s) })
		}
	}
	return []group{
		{"Which processes", oneOf("pid", "host", "containername", "runtime-containername", "runtimes", "scan-interval", "attach-mode", "forget-exited")},
		{"What is shown", oneOf("output", "fields", "sort", "filter", "filter-expr", "max-entries", "timeout", "older-than", "mode", "format", "threads", "gil", "wall", "frequency", "torch", "torch-fits", "spans", "native-stacks", "unwind-memory", "hang", "straggler", "slowdown", "ras", "gpu-idle")},
		{"Files", ends("-out", "-html", "-base", "-every", "-listen")},
		{"Timelines", oneOf("with", "beside")},
		{"Export", begins("pyroscope", "otlp", "otel", "metrics", "export", "profiles", "cluster", "nvml", "label", "queue")},
		{"Containers and Kubernetes", begins("k8s", "kube", "container", "docker", "crio", "podman", "runtime", "enrich")},
		{"Images", begins("pull", "verify", "public-key", "insecure", "allowed", "auth", "image", "notation", "disallow")},
	}
}

// writeGroups prints every flag under the first group that has it.
func writeGroups(w io.Writer, flags *pflag.FlagSet) {
	seen := map[string]bool{"help": true, All: true}
	for _, g := range append(groups(), group{"Others", func(string) bool { return true }}) {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.VisitAll(func(f *pflag.Flag) {
			if !seen[f.Name] && !f.Hidden && g.has(f.Name) {
				seen[f.Name] = true
				set.AddFlag(f)
			}
		})
		if set.HasAvailableFlags() {
			fmt.Fprintf(w, "\n%s:\n", g.title)
			WriteFlags(w, set, nil)
		}
	}
}
