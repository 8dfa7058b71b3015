// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// results are the newest results on a kernel, in testdata/results: the table of
// docs/reference/kernels.md is made from these files alone.
type results struct {
	Release string `json:"release"` // as uname -r says
	// Facts are those recorded by tests that passed, by test and name.
	Facts map[string]map[string]string `json:"facts"`
}

const resultsDir = "testdata/results"

// factPrefix begins a line on stdout with which a test in the machine records a fact.
const factPrefix = "fact: "

// record records a fact for a test in the machine, which is kept if the test passes. The
// name is that of the row of the table.
func record(t *testing.T, fact, format string, args ...any) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	line, err := json.Marshal([]string{test, fact, fmt.Sprintf(format, args...)})
	require.NoError(t, err)
	fmt.Printf("%s%s\n", factPrefix, line)
}

var (
	recorded = regexp.MustCompile(`(?m)` + factPrefix + `(\[.*\])$`)
	passed   = regexp.MustCompile(`(?m)^--- PASS: (Test\w+) \(`)
)

// keep updates the results of a kernel, for the tests that were selected. Those of a
// failed test are removed.
func keep(t *testing.T, kernel, release, stdout string, tests []string) {
	t.Helper()
	r := readResults(t, kernel)
	if r.Release != release {
		r = results{Release: release}
	}
	if r.Facts == nil {
		r.Facts = map[string]map[string]string{}
	}
	ok := map[string]bool{}
	for _, m := range passed.FindAllStringSubmatch(stdout, -1) {
		ok[m[1]] = true
	}
	for _, name := range tests {
		delete(r.Facts, "Test"+name)
		if ok["Test"+name] {
			r.Facts["Test"+name] = map[string]string{}
		}
	}
	for _, m := range recorded.FindAllStringSubmatch(stdout, -1) {
		var fact [3]string
		require.NoError(t, json.Unmarshal([]byte(m[1]), &fact), m[1])
		if ok[fact[0]] {
			r.Facts[fact[0]][fact[1]] = fact[2]
		}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(resultsDir, 0o755))
	require.NoError(t, os.WriteFile(resultsFile(kernel), append(text, '\n'), 0o644))
}

func resultsFile(kernel string) string { return filepath.Join(resultsDir, kernel+".json") }

// readResults returns nothing for a kernel that never ran.
func readResults(t *testing.T, kernel string) (r results) {
	t.Helper()
	text, err := os.ReadFile(resultsFile(kernel))
	if errors.Is(err, fs.ErrNotExist) {
		return r
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r), resultsFile(kernel))
	return r
}
