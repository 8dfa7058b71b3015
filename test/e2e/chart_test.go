// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
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

// A daemon's parameters are called as the flags of a run.
func TestParametersOfTheChartsDaemonExist(t *testing.T) {
	text, err := os.ReadFile("../../charts/gpu-gadgets/values-daemon.yaml")
	require.NoError(t, err)
	var values struct {
		InspektorGadget struct {
			Config struct{ Operator map[string]map[string]any }
		} `json:"inspektor-gadget"`
	}
	require.NoError(t, yaml.Unmarshal(text, &values))
	help, err := exec.Command(program(t), "run", "cuda_alloc", "--help").CombinedOutput()
	require.NoError(t, err, "%s", help)
	for _, operator := range []string{"export", "metrics"} {
		parameters := values.InspektorGadget.Config.Operator[operator]
		require.NotEmpty(t, parameters, operator)
		for name := range parameters {
			require.Regexp(t, `--`+name+`[ =]`, string(help), "operator.%s.%s", operator, name)
		}
	}
}
