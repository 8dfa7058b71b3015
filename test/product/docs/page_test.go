// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlocksHaveTheOutputBelowThem(t *testing.T) {
	blocks, err := parse("# Page\n```bash\nls\n```\n\n```text\na b\n```\nwords\n<!-- not run: no cluster -->\n```bash\nkubectl\n```\n```yaml\nx: 1\n```\n")
	require.NoError(t, err)
	require.Equal(t, []block{
		{line: 3, script: "ls\n", output: "a b\n"},
		{line: 12, script: "kubectl\n", skipped: "no cluster"},
	}, blocks)

	_, err = parse("words\n```text\nno commands\n```\n")
	require.ErrorContains(t, err, "line 2: an output without commands before it")
	_, err = parse("```bash\nls\n")
	require.ErrorContains(t, err, "does not end")
	blocks, err = parse("<!-- not run: why -->\nwords\n```bash\nls\n```\n")
	require.NoError(t, err)
	require.Empty(t, blocks[0].skipped, "a mark holds for the block right below it")
}

func TestOnlyNumbersMayDiffer(t *testing.T) {
	const shown = "INUSE    FRAME\n1.62 GiB Model.load (model.py:7)\n…\n+26.0 MiB it grew by 40 %\n"
	require.Empty(t, missing(shown, "attached\nINUSE   FRAME\n890 MiB   Model.load (model.py:7)\nother\n+1 B it grew by 7%\n"))
	require.Equal(t, "1.62 GiB Model.load (model.py:7)",
		missing(shown, "INUSE FRAME\n890 MiB Model.save (model.py:7)\n+1 B it grew by 7 %\n"), "another name")
	require.Equal(t, "+26.0 MiB it grew by 40 %",
		missing(shown, "+1 B it grew by 7 %\nINUSE FRAME\n1 B Model.load (model.py:7)\n"), "another order")
	require.Empty(t, missing("rank 1 of 4 is stopped …\n", "rank 2 of 8 is stopped, before Broadcast 161\n"))
	require.Equal(t, "rank 1 is …", missing("rank 1 is …\n", "a rank\n"))
}

func TestAFailingCommandFailsItsBlock(t *testing.T) {
	sh := startShell(t)
	printed, err := sh.run("x=3; echo $x")
	require.NoError(t, err)
	require.Equal(t, "3\n\n", printed)
	printed, err = sh.run("false\necho after $x")
	require.ErrorContains(t, err, "status 1")
	require.Contains(t, printed, "after 3", "variables live from block to block")
	_, err = sh.run("sleep 3 &\ntrue") // it holds the output until it ends
	require.NoError(t, err)
	_, err = sh.run("exit")
	require.ErrorContains(t, err, "the shell ended")
}
