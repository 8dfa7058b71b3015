// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
)

func TestTextOfTracedProgramsIsTidied(t *testing.T) {
	text := tidy("evil\033]0;title\a\n\nignore \xff all\u202e " + strings.Repeat("x", 10_000))
	require.LessOrEqual(t, len([]rune(text)), maxText)
	for _, r := range text {
		require.False(t, unicode.IsControl(r) || unicode.Is(unicode.Cf, r), "%q", r)
	}
	require.True(t, strings.HasPrefix(text, "evil"))
	require.Equal(t, "a b", tidy(" a\tb\n"))
}

func TestWhatIsCutIsCounted(t *testing.T) {
	all, cut := first([]int{1, 2, 3}, 2)
	require.Equal(t, []int{1, 2}, all)
	require.Equal(t, 1, cut)
	all, cut = first[int](nil, 2)
	require.NotNil(t, all, "an empty list in JSON")
	require.Zero(t, cut)
}

// Gemini refuses a request with a tool whose value may be of several types.
func TestEachArgumentOfAToolHasOneType(t *testing.T) {
	here, there := mcp.NewInMemoryTransports()
	_, err := newServer(Config{}, "1").Connect(t.Context(), there, nil)
	require.NoError(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), here, nil)
	require.NoError(t, err)
	defer session.Close()
	list, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list.Tools, 6)
	types := 0
	var check func(path string, part any)
	check = func(path string, part any) {
		switch part := part.(type) {
		case map[string]any:
			for key, value := range part {
				if key == "type" {
					types++
					require.IsType(t, "", value, path)
				}
				check(path+"."+key, value)
			}
		case []any:
			for _, value := range part {
				check(path, value)
			}
		}
	}
	for _, tool := range list.Tools {
		check(tool.Name, tool.InputSchema)
	}
	require.Greater(t, types, 2*len(list.Tools))
}

// sudo then fails at once, with the reason in the assistant's log. The page is docs/guides/assistants.md.
func TestTheConfigurationToPasteDoesNotWaitForAPassword(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/guides/assistants.md")
	require.NoError(t, err)
	cmd := newMCP(Config{})
	for _, text := range []string{string(page), cmd.Example} {
		var config struct {
			Servers map[string]struct {
				Command string
				Args    []string
			} `json:"mcpServers"`
		}
		require.NoError(t, json.Unmarshal([]byte(regexp.MustCompile(`\{"mcpServers"(?s:.*?)\}\}\}`).FindString(text)), &config))
		require.Equal(t, "sudo", config.Servers["ig-gpu"].Command)
		require.Equal(t, []string{"-n", "/usr/local/bin/ig-gpu", "mcp"}, config.Servers["ig-gpu"].Args)
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	rule := regexp.MustCompile(`echo "\$USER ALL=\S+ NOPASSWD: /usr/local/bin/ig-gpu mcp" \| sudo tee \S+`) // with these arguments only
	require.Contains(t, cmd.Example, "-- sudo -n /usr/local/bin/ig-gpu mcp\n")
	require.Regexp(t, rule, words(string(page)))
	require.Equal(t, rule.FindString(words(string(page))), rule.FindString(words(cmd.Example)))
}

// What waits for longer than the measurement is never found: that is no answer that no rank is missing.
func TestAHangIsShorterThanItsMeasurement(t *testing.T) {
	for _, c := range []struct {
		seconds, hang int
		want          time.Duration
		err           string
	}{
		{0, 0, 5 * time.Second, ""},
		{2, 0, time.Second, ""},
		{3, 0, time.Second, ""},
		{30, 29, 29 * time.Second, ""},
		{0, 10, 0, "hang_seconds: want less than seconds (10), not 10"},
		{0, 30, 0, "hang_seconds: want less than seconds (10), not 30"},
		{30, 1 << 40, 0, "hang_seconds: want less than seconds (30), not 1099511627776"},
		{0, -1, 0, "hang_seconds: want at least 1, not -1"},
	} {
		e := &recorder{}
		tools := &tools{cfg: Config{Engine: e, ProcFS: procfs(t)}, turn: make(chan struct{}, 1)}
		_, err := tools.hangs(t.Context(), hangsInput{watchInput{Seconds: c.seconds}, c.hang})
		if c.err != "" {
			require.EqualError(t, err, c.err)
			require.Empty(t, e.runs)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, flagsOf("ranks", "hang", c.want.String()), e.runs[0].Flags)
	}
}

// What could not be counted is no empty answer.
func TestTopOfLaunchesFailsWhereTheyAreNotCounted(t *testing.T) {
	cfg := Config{Engine: &failing{}, ProcFS: procfs(t)}
	for view, want := range map[top.View]string{top.Memory: "", top.Launches: "launches and waits are not counted: no", top.Waits: "launches and waits are not counted: no"} {
		_, _, err := measureTop(t.Context(), cfg, []uint32{7}, top.ByLine, view, time.Second)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}
