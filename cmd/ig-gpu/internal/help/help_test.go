// SPDX-License-Identifier: Apache-2.0

package help

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// requireScreen: the text fits a terminal of 80 columns and 40 lines.
func requireScreen(t *testing.T, text string) {
	t.Helper()
	require.LessOrEqual(t, strings.Count(text, "\n"), 40, text)
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), Width, line)
	}
}

func TestTheHelpOfAGadgetFitsAScreen(t *testing.T) {
	for _, name := range Gadgets() {
		var out bytes.Buffer
		require.True(t, WriteGadget(&out, name))
		requireScreen(t, out.String())
		require.Equal(t, 3, strings.Count(out.String(), "  ig-gpu run "), name)
		require.Contains(t, out.String(), "--pid PID")
	}
	require.False(t, WriteGadget(&bytes.Buffer{}, "trace_tcp"))
	var out bytes.Buffer
	WriteRun(&out)
	requireScreen(t, out.String())
	for _, name := range Gadgets() {
		require.Contains(t, out.String(), "\n  "+name+" ")
	}
}

func TestTheFirstPageHasOwnFlagsAndAllHasEvery(t *testing.T) {
	root := &cobra.Command{Use: "ig-gpu"}
	Install(root)
	root.PersistentFlags().Bool("verbose", false, "Print debug information")
	cmd := &cobra.Command{Use: "dump", Short: "Dump", Run: func(*cobra.Command, []string) {}, GroupID: GroupAsk}
	cmd.Flags().StringP("output", "o", "text", "text or json")
	cmd.Flags().Duration("timeout", 0, "End after so long")
	root.AddCommand(cmd)
	show := func(args ...string) string {
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs(args)
		require.NoError(t, root.Execute())
		return out.String()
	}
	page := show("dump", "--help")
	require.Contains(t, page, "  -o, --output TEXT       text or json (default text)\n")
	require.NotContains(t, page, "--verbose")
	require.Contains(t, show("dump", "--help-all", "--help"), "--verbose")
	require.NotContains(t, page, "default 0s")
	require.Contains(t, show("--help"), "Ask about a process or a file:\n  dump            Dump\n")
}

func TestWrapKeepsWords(t *testing.T) {
	text := Wrap(strings.Repeat("word ", 40), 4)
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), Width)
		require.True(t, strings.HasPrefix(line, "    word"), line)
	}
	require.Equal(t, 40, strings.Count(text, "word"))
}
