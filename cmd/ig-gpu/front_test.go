// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/help"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/verb"
)

func TestHelpOfAGadgetIsFoundBeforeTheCommandsExist(t *testing.T) {
	for _, c := range []struct {
		given, args, gadget string
		all                 bool
	}{
		{"run cuda_alloc --help", "run cuda_alloc --help", "cuda_alloc", false},
		{"run -h cuda_kernel", "run -h cuda_kernel", "cuda_kernel", false},
		{"run cuda_alloc --help-all", "run cuda_alloc --help", "cuda_alloc", true},
		{"run cuda_alloc --help --help-all", "run cuda_alloc --help", "cuda_alloc", true},
		{"run trace_tcp --help", "run trace_tcp --help", "", false},
		{"run cuda_alloc -- --help", "run cuda_alloc -- --help", "", false},
		{"dump --help-all", "dump --help-all --help", "", false},
		{"dump 7", "dump 7", "", false},
	} {
		r := helpOf(strings.Fields(c.given))
		require.Equal(t, c.args, strings.Join(r.args, " "))
		require.Equal(t, c.gadget, r.gadget, c.given)
		require.Equal(t, c.all, r.all, c.given)
	}
}

func TestAMistypedFlagIsAnsweredWithThoseLikeIt(t *testing.T) {
	cmd := &cobra.Command{Use: "run"}
	cmd.Flags().String("timeline-out", "", "")
	cmd.Flags().String("timeout", "", "")
	err := suggested(cmd, errors.New("unknown flag: --timout"))
	require.EqualError(t, err, "unknown flag: --timout. Did you mean --timeout?")
	require.EqualError(t, suggested(cmd, errors.New("unknown flag: --xyzzy")), "unknown flag: --xyzzy")
	require.EqualError(t, suggested(cmd, errors.New("no such process")), "no such process")
	require.NoError(t, suggested(cmd, nil))
}

func TestAFlagOrCommandOfOtherToolsIsAnsweredWithOurs(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"check", "--pid", "4"}, "unknown flag: --pid. Name processes without a flag: ig-gpu check 4711"},
		{[]string{"dump", "-p", "4"}, "unknown shorthand flag: 'p' in -p. Name processes without a flag: ig-gpu dump 4711"},
		{[]string{"record", "4", "--duration", "3s"}, "unknown flag: --duration. Did you mean --for?"},
		{[]string{"dump", "4", "--native", "--odd"}, "--native: --odd and --frozen compare stacks of Python; dump the processes that they name with --native"},
		{[]string{"top", "--duration", "3s"}, "unknown flag: --duration. Did you mean --timeout?"},
		{[]string{"recotd", "4"}, `unknown command "recotd" for "ig-gpu". Did you mean record?`},
		{[]string{"report"}, "report: name a profile (.pb.gz)"},
		{[]string{"diff", "a"}, "diff: name two profiles, before and after (1 argument was given)"},
		{[]string{"report", "a", "b"}, "report: name a profile (.pb.gz) (2 arguments were given)"},
	} {
		root := &cobra.Command{Use: "ig-gpu", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(verb.Commands(verb.Config{})...)
		for _, g := range []string{help.GroupAsk, help.GroupSetUp} {
			root.AddGroup(&cobra.Group{ID: g})
		}
		root.SetArgs(c.args)
		cmd, err := root.ExecuteC()
		require.EqualError(t, suggested(cmd, err), c.want)
	}
}

// Anybody may read help, complete a command line, and write man pages.
func TestTheFrontDoorOpensWithoutAGadget(t *testing.T) {
	layouts := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(layouts, "cuda_alloc"), 0o755))
	pages := filepath.Join(t.TempDir(), "man1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--help"}, "Ask about a process or a file:"},
		{[]string{"--version"}, "ig-gpu " + version},
		{[]string{"run", "cuda_alloc", "--help"}, "ig-gpu run cuda_alloc --help-all"},
		{[]string{"run", "--help"}, "Gadgets:\n  cuda_alloc "},
		{[]string{"run"}, "Gadgets:\n  cuda_alloc "},
		{[]string{"help", "run"}, "Gadgets:\n  cuda_alloc "},
		{[]string{"run", "--help-all"}, "--metrics-listen"},
		{[]string{"record", "--help"}, "--what TEXT"},
		{[]string{"record", "--help-all"}, "--verbose"},
		{[]string{"__complete", "run", ""}, "cuda_alloc"},
		{[]string{"__complete", "run", "cuda_alloc", "--flameg"}, "--flamegraph-out"},
		{[]string{"__complete", "record", "--what", ""}, "collectives"},
		{[]string{"completion", "bash"}, "__start_ig-gpu"},
		{[]string{"man", pages}, ""},
	} {
		cmd, stdout, stderr := command(t, layouts, c.args...)
		require.NoError(t, cmd.Run(), "%v: %s", c.args, stderr)
		require.Contains(t, stdout.String(), c.want, c.args)
	}
	page, err := os.ReadFile(filepath.Join(pages, "ig-gpu-record.1"))
	require.NoError(t, err)
	require.Contains(t, string(page), "a page for the browser")

	cmd, _, stderr := command(t, layouts, "dmup", "7")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "dump")
	cmd, _, stderr = command(t, layouts, "record", "--fro", "3")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "Did you mean --for")
}

// Each command has a line of its own in the list, and its sentence ends there.
func TestHelpCutsNoSentence(t *testing.T) {
	layouts := t.TempDir()
	for _, args := range [][]string{{"--help"}, {"image", "--help"}} {
		cmd, stdout, stderr := command(t, layouts, args...)
		require.NoError(t, cmd.Run(), "%v: %s", args, stderr)
		require.NotEmpty(t, stdout.String(), args)
		for line := range strings.Lines(stdout.String()) {
			require.False(t, strings.HasSuffix(strings.TrimSpace(line), "…"), "%v: %s", args, line)
		}
	}
}
