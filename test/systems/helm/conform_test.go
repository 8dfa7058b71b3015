// SPDX-License-Identifier: Apache-2.0

//go:build checkers

package helm

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// conform checks with kubeconform that these are objects of Kubernetes.
func conform(t *testing.T, objects string) (string, error) {
	t.Helper()
	schemas, err := exec.Command("../../support/fixtures/kubernetes-schemas.sh").Output()
	require.NoError(t, err)
	command := exec.Command("../../../build/tools/kubeconform", "-strict", "-summary", "-verbose",
		// Kinds of the Prometheus operator are checked with its own types: chart_test.go.
		"-skip", "monitoring.coreos.com/v1/ServiceMonitor,monitoring.coreos.com/v1/PrometheusRule",
		"-schema-location", strings.TrimSpace(string(schemas))+"/{{.ResourceKind}}{{.KindSuffix}}.json", "-")
	command.Stdin = strings.NewReader(objects)
	out, err := command.CombinedOutput()
	return string(out), err
}

func TestObjectsAreOfKubernetes(t *testing.T) {
	for name, c := range map[string]struct {
		arguments []string
		valid     string
	}{
		"default":          {nil, "4 resources found parsing stdin - Valid: 4, Invalid: 0, Errors: 0, Skipped: 0"},
		"all":              {append([]string{"--values", "testdata/all.values.yaml"}, operator...), "6 resources found parsing stdin - Valid: 4, Invalid: 0, Errors: 0, Skipped: 2"},
		"openshift":        {[]string{"--api-versions", "security.openshift.io/v1", "--set", "exporter.enabled=true"}, "10 resources found parsing stdin - Valid: 10, Invalid: 0, Errors: 0, Skipped: 0"},
		"daemon":           {[]string{"--values", "../../../charts/gpu-gadgets/values-daemon.yaml"}, "10 resources found parsing stdin - Valid: 10, Invalid: 0, Errors: 0, Skipped: 0"},
		"inspektor-gadget": {[]string{"--set", "inspektor-gadget.enabled=true"}, "11 resources found parsing stdin - Valid: 11, Invalid: 0, Errors: 0, Skipped: 0"},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := template(t, c.arguments...)
			require.NoError(t, err, rendered)
			out, err := conform(t, rendered)
			require.NoError(t, err, out)
			require.Contains(t, out, c.valid)
		})
	}
	rendered, err := template(t)
	require.NoError(t, err, rendered)
	for old, wrong := range map[string]string{"hostPID: true": "hostPid: true", "containerPort: 9464": "containerPort: many", "memory: 512Mi": "memory: [512Mi]"} {
		require.Contains(t, rendered, old)
		out, err := conform(t, strings.Replace(rendered, old, wrong, 1))
		require.Error(t, err, "%s\n%s", wrong, out)
		require.Contains(t, out, "Invalid: 1", wrong)
	}
}

// TestSuites runs charts/gpu-gadgets/tests, which users of the chart can run, too.
func TestSuites(t *testing.T) {
	var out bytes.Buffer
	command := exec.Command("../../../build/tools/helm-unittest", chart)
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	require.NoError(t, err, out.String())
	t.Logf("%s", out.String())
	require.Regexp(t, `Test Suites: [6-9] passed, [6-9] total`, out.String())
	require.Regexp(t, `Tests: +([3-9]\d|\d{3,}) passed`, out.String())
}
