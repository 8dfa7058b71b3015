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
	var text []byte
	for _, name := range []string{"templates/_export.tpl", "templates/daemonset.yaml"} {
		one, err := os.ReadFile("../../charts/gpu-gadgets/" + name)
		require.NoError(t, err)
		text = append(text, one...)
	}
	flags := regexp.MustCompile(`[ "](--[a-z]+(?:-[a-z]+)*)`).FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(flags), 20)
	rendered, err := os.ReadFile("../helm/testdata/all.golden.yaml")
	require.NoError(t, err)
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
