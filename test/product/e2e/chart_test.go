// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// The chart's tests (test/systems/helm) know Kubernetes, not ig-gpu.
func TestFlagsOfTheChartExist(t *testing.T) {
	var text []byte
	for _, name := range []string{"templates/_export.tpl", "templates/daemonset.yaml"} {
		one, err := os.ReadFile("../../../charts/gpu-gadgets/" + name)
		require.NoError(t, err)
		text = append(text, one...)
	}
	flag := regexp.MustCompile(`[ "](--[a-z]+(?:-[a-z]+)*)`)
	flags := flag.FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(flags), 20)
	rendered, err := os.ReadFile("../../systems/helm/testdata/all.golden.yaml")
	require.NoError(t, err)
	gadgets := map[string]bool{}
	for _, container := range strings.Split(string(rendered), "command: [ig-gpu, run, ")[1:] {
		gadget, rest, _ := strings.Cut(container, "]")
		gadgets[gadget] = true
		args, _, _ := strings.Cut(rest, "env:")
		own := flag.FindAllStringSubmatch(args, -1)
		require.NotEmpty(t, own, gadget)
		if gadget == "cuda_alloc" {
			own = flags // all that the templates may set
		}
		help, err := exec.Command(program(t), "run", gadget, "--help-all").CombinedOutput()
		require.NoError(t, err, "%s", help)
		for _, f := range own {
			require.Regexp(t, f[1]+`[ =]`, string(help), "ig-gpu run %s has no %s", gadget, f[1])
		}
	}
	require.Len(t, gadgets, 4)
}

// A daemon's parameters are called as the flags of a run.
func TestParametersOfTheChartsDaemonExist(t *testing.T) {
	text, err := os.ReadFile("../../../charts/gpu-gadgets/values-daemon.yaml")
	require.NoError(t, err)
	var values struct {
		InspektorGadget struct {
			Config struct{ Operator map[string]map[string]any }
		} `json:"inspektor-gadget"`
	}
	require.NoError(t, yaml.Unmarshal(text, &values))
	help, err := exec.Command(program(t), "run", "cuda_alloc", "--help-all").CombinedOutput()
	require.NoError(t, err, "%s", help)
	for _, operator := range []string{"export", "metrics"} {
		parameters := values.InspektorGadget.Config.Operator[operator]
		require.NotEmpty(t, parameters, operator)
		for name := range parameters {
			require.Regexp(t, `--`+name+`[ =]`, string(help), "operator.%s.%s", operator, name)
		}
	}
}
