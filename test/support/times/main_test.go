// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheNewestLineOfAPackageCounts(t *testing.T) {
	all, err := parse(strings.NewReader(`{"package":"test/a","processor_ns":9000000000,"wall_ns":1}
{"package":"test/b","processor_ns":5000000000,"wall_ns":6000000000}
{"package":"test/a","processor_ns":4000000000,"wall_ns":2000000000}
{"package":"internal/c","processor_ns":1000000000,"wall_ns":1000000000}
`))
	require.NoError(t, err)
	before := []cost{{Package: "test/a", Processor: 7 * time.Second}, {Package: "test/gone", Processor: time.Hour}}
	require.Equal(t, `| package | processor time before, s | processor time, s | by the clock, s |
|---|--:|--:|--:|
| `+"`test/b`"+` |  | 5 | 6 |
| `+"`test/a`"+` | 7 | 4 | 2 |
| 1 others, each below 2 s |  | 1 | 1 |
| **these packages** | 7 | 10 | 9 |
`, table(all, before))
}

func TestTheWholeRunHasItsBuilds(t *testing.T) {
	all := []cost{{Package: whole, Processor: 30 * time.Second, Wall: time.Minute}, {Package: "test/a", Processor: 10 * time.Second}}
	before := []cost{{Package: whole, Processor: 100 * time.Second}, {Package: "test/a", Processor: 40 * time.Second}}
	require.Equal(t, `| package | processor time before, s | processor time, s | by the clock, s |
|---|--:|--:|--:|
| `+"`test/a`"+` | 40 | 10 | 0 |
| **these packages** | 40 | 10 | 0 |
| builds, and the packages that need no root | 60 | 20 | |
| **`+"`make test`"+`** | 100 | 30 | 60 |
`, table(all, before))
}

func TestOnlyTheTableIsRenewed(t *testing.T) {
	dir := t.TempDir()
	readme, log := filepath.Join(dir, "README.md"), filepath.Join(dir, "log")
	require.NoError(t, os.WriteFile(readme, []byte("above\n"+begin+"old\n"+end+"below\n"), 0o600))
	require.NoError(t, add(log, cost{Package: "test/a", Processor: 3 * time.Second, Wall: time.Second}))
	require.NoError(t, renew(readme, log, log))
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	require.Contains(t, string(text), "| `test/a` | 3 | 3 | 1 |")
	require.NotContains(t, string(text), "old")
	require.True(t, strings.HasPrefix(string(text), "above\n"+begin) && strings.HasSuffix(string(text), end+"below\n"), string(text))

	require.NoError(t, os.WriteFile(readme, []byte("no table\n"), 0o600))
	require.ErrorContains(t, renew(readme, log, ""), "no place for the table")
	require.ErrorIs(t, renew(readme, log, filepath.Join(dir, "missing")), os.ErrNotExist)
}

// A command's exit status is passed on, and its processor time includes its children.
func TestTheCostOfChildrenIsLogged(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	status, err := run(log, "", []string{"sh", "-c", `sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; exit 3`})
	require.NoError(t, err)
	require.Equal(t, 3, status)
	status, err = run(log, "", []string{"sh", "-c", "kill -9 $$"})
	require.NoError(t, err)
	require.Equal(t, 137, status)

	f, err := os.Open(log)
	require.NoError(t, err)
	defer f.Close()
	all, err := parse(f)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "test/support/times", all[0].Package)
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.NoError(t, onlyStatus(run(log, whole, []string{"true"})))
	named, err := parseFile(log)
	require.NoError(t, err)
	require.Len(t, named, 2)
	first, _, _ := strings.Cut(string(text), "\n")
	all, err = parse(strings.NewReader(first))
	require.NoError(t, err)
	require.Greater(t, all[0].Processor, 20*time.Millisecond)
}

// onlyStatus is the error of a run, or its exit status as one.
func onlyStatus(status int, err error) error {
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d", status)
	}
	return err
}
