// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The chart's tests (test/helm) know Kubernetes, not ig-gpu.
func TestFlagsOfTheChartExist(t *testing.T) {
	rendered, err := os.ReadFile("../helm/testdata/all.golden.yaml")
	require.NoError(t, err)
	flags := regexp.MustCompile(`(?m)^ +- (--[a-z-]+)`).FindAllStringSubmatch(string(rendered), -1)
	require.Greater(t, len(flags), 10)
	commands := regexp.MustCompile(`command: \[ig-gpu, run, (\w+)\]`).FindAllStringSubmatch(string(rendered), -1)
	require.Len(t, commands, 2)
	for _, gadget := range commands {
		help, err := exec.Command(program(t), "run", gadget[1], "--help").CombinedOutput()
		require.NoError(t, err, "%s", help)
		for _, flag := range flags {
			require.Regexp(t, flag[1]+`[ =]`, string(help), "ig-gpu run %s has no %s", gadget[1], flag[1])
		}
	}
}
