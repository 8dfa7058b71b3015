// SPDX-License-Identifier: Apache-2.0

// Package helm checks the chart with Helm itself: `make test-chart`. It is a
// module of its own, so that Helm's dependencies are not the product's.
package helm

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const (
	helm = "../../../build/tools/helm"
	// chart is charts/gpu-gadgets with its dependency, as scripts/chart.sh packages it.
	chart = "../../../build/charts/gpu-gadgets"
)

var update = flag.Bool("update", false, "write testdata/*.golden.yaml")

// run returns Helm's output, or its error.
func run(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	if _, err := os.Stat(helm); err != nil {
		t.Fatalf("no Helm: run make test-chart: %v", err)
	}
	if _, err := os.Stat(chart); err != nil {
		t.Fatalf("no chart: run make test-chart: %v", err)
	}
	var out, complaint bytes.Buffer
	command := exec.Command(helm, arguments...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	command.Stdout, command.Stderr = &out, &complaint
	err := command.Run()
	if err != nil {
		return complaint.String() + out.String(), err
	}
	return out.String(), nil
}

func template(t *testing.T, arguments ...string) (string, error) {
	return run(t, append([]string{"template", "gpu", chart, "--namespace", "gpu-gadgets", "--kube-version", "1.30"}, arguments...)...)
}

var operator = []string{"--api-versions", "monitoring.coreos.com/v1/ServiceMonitor", "--api-versions", "monitoring.coreos.com/v1/PrometheusRule"}

func TestTemplates(t *testing.T) {
	for name, arguments := range map[string][]string{
		"default": nil,
		"all":     append([]string{"--values", "testdata/all.values.yaml"}, operator...),
		// Without the values of Inspektor Gadget's chart.
		"daemon":   {"--values", "../../../charts/gpu-gadgets/values-daemon.yaml", "--set", "inspektor-gadget.enabled=false"},
		"disabled": {"--set", "gpuObservability.enabled=false,grafana.dashboards.enabled=false"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := template(t, arguments...)
			require.NoError(t, err, got)
			decode(t, got)
			got = withoutFiles(got)
			file := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got, "if this is right: go test ./... -update")
		})
	}
}

// withoutFiles omits objects with their own files and tests, in dashboards/.
func withoutFiles(rendered string) string {
	var documents []string
	for _, d := range strings.Split(rendered, "\n---\n") {
		for _, cut := range []string{"\n  gpu-gadgets.json: |", "\n  groups:"} {
			if i := strings.Index(d, cut); i >= 0 {
				d = d[:i+len(cut)] + " (left out)"
			}
		}
		documents = append(documents, strings.TrimRight(d, "\n"))
	}
	return strings.Join(documents, "\n---\n") + "\n"
}

// objects are the rendered documents by kind.
type objects struct {
	daemonSet *appsv1.DaemonSet
	exporter  *appsv1.StatefulSet
	service   *corev1.Service
	config    *corev1.ConfigMap
	kinds     []string
	others    map[string]map[string]any
}

// decode reads every document as the type that Kubernetes has of it; a field that
// the type does not have is an error.
func decode(t testing.TB, rendered string) objects {
	t.Helper()
	o := objects{others: map[string]map[string]any{}}
	for _, d := range strings.Split("\n"+rendered, "\n---\n") {
		var head struct{ APIVersion, Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(d), &head))
		if head.Kind == "" {
			continue
		}
		o.kinds = append(o.kinds, head.Kind)
		var into any
		switch head.APIVersion + " " + head.Kind {
		case "apps/v1 DaemonSet":
			o.daemonSet = &appsv1.DaemonSet{}
			into = o.daemonSet
		case "v1 Service":
			o.service = &corev1.Service{}
			into = o.service
		case "v1 ConfigMap":
			o.config = &corev1.ConfigMap{}
			into = o.config
		case "v1 ServiceAccount":
			into = &corev1.ServiceAccount{}
		case "apps/v1 StatefulSet":
			o.exporter = &appsv1.StatefulSet{}
			into = o.exporter
		case "rbac.authorization.k8s.io/v1 Role":
			into = &rbacv1.Role{}
		case "rbac.authorization.k8s.io/v1 RoleBinding":
			into = &rbacv1.RoleBinding{}
		case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
			into = &rbacv1.ClusterRoleBinding{}
		case "monitoring.coreos.com/v1 ServiceMonitor", "monitoring.coreos.com/v1 PrometheusRule":
			m := map[string]any{}
			o.others[head.Kind] = m
			require.NoError(t, yaml.Unmarshal([]byte(d), &m))
			// The operator's own types define the fields of its kinds.
			into = &monitoringv1.ServiceMonitor{}
			if head.Kind == "PrometheusRule" {
				into = &monitoringv1.PrometheusRule{}
			}
		default:
			t.Fatalf("nobody expects a %s %s", head.APIVersion, head.Kind)
		}
		require.NoError(t, yaml.UnmarshalStrict([]byte(d), into), d)
	}
	return o
}

func TestPrivilegesAreThoseThatAreNeeded(t *testing.T) {
	rendered, err := template(t, "--values", "testdata/all.values.yaml")
	require.NoError(t, err, rendered)
	spec := decode(t, rendered).daemonSet.Spec.Template.Spec
	require.True(t, spec.HostPID)
	require.False(t, spec.HostNetwork)
	require.False(t, *spec.AutomountServiceAccountToken)
	require.Len(t, spec.Containers, 4)
	for _, c := range spec.Containers {
		s := c.SecurityContext
		require.Nil(t, s.Privileged)
		require.Equal(t, []corev1.Capability{"ALL"}, s.Capabilities.Drop)
		require.Equal(t, []corev1.Capability{"SYS_ADMIN", "SYS_PTRACE", "SYS_RESOURCE", "DAC_READ_SEARCH"}, s.Capabilities.Add)
		require.True(t, *s.ReadOnlyRootFilesystem)
	}
	for _, v := range spec.Containers[0].VolumeMounts {
		if v.Name == "host" || v.Name == "run" {
			require.True(t, v.ReadOnly, v.MountPath)
		}
	}
}

func TestEachGadgetHasItsPort(t *testing.T) {
	rendered, err := template(t, append([]string{"--values", "testdata/all.values.yaml"}, operator...)...)
	require.NoError(t, err, rendered)
	o := decode(t, rendered)
	require.Len(t, o.service.Spec.Ports, 4)
	endpoints := o.others["ServiceMonitor"]["spec"].(map[string]any)["endpoints"].([]any)
	for i, c := range o.daemonSet.Spec.Template.Spec.Containers {
		require.Equal(t, c.Ports[0].ContainerPort, o.service.Spec.Ports[i].Port)
		require.Equal(t, o.service.Spec.Ports[i].Name, endpoints[i].(map[string]any)["port"])
		require.Contains(t, strings.Join(c.Args, " "), fmt.Sprintf("--metrics-listen=:%d", 19000+i))
	}
	for k, v := range o.service.Spec.Selector {
		require.Equal(t, v, o.daemonSet.Spec.Template.Labels[k])
	}
}

func TestRulesAndDashboardAreThoseOfTheRepository(t *testing.T) {
	rulesAndDashboard(t, []string{"alerts.yaml", "nccl.yaml"})
}

func TestAlertsOnFullMemoryAreOptional(t *testing.T) {
	rulesAndDashboard(t, []string{"alerts.yaml", "nccl.yaml", "alerts-full.yaml"}, "--set", "metrics.prometheusRule.fullMemory=true")
}

// rulesAndDashboard compares the chart's objects with the files of dashboards/.
func rulesAndDashboard(t *testing.T, names []string, set ...string) {
	t.Helper()
	rendered, err := template(t, append(slices.Clone(operator), set...)...)
	require.NoError(t, err, rendered)
	o := decode(t, rendered)
	var groups []any
	for _, name := range names {
		text, err := os.ReadFile("../../../dashboards/" + name)
		require.NoError(t, err)
		var rules map[string]any
		require.NoError(t, yaml.Unmarshal(text, &rules))
		require.NotEmpty(t, rules["groups"], name)
		groups = append(groups, rules["groups"].([]any)...)
	}
	require.Equal(t, map[string]any{"groups": groups}, o.others["PrometheusRule"]["spec"])
	board, err := os.ReadFile("../../../dashboards/gpu-gadgets.json")
	require.NoError(t, err)
	require.YAMLEq(t, string(board), o.config.Data["gpu-gadgets.json"])
	require.Equal(t, "1", o.config.Labels["grafana_dashboard"])
}

func TestMonitoringNeedsItsKinds(t *testing.T) {
	rendered, err := template(t)
	require.NoError(t, err, rendered)
	require.NotContains(t, decode(t, rendered).kinds, "ServiceMonitor")
	rendered, err = template(t, "--set", "metrics.serviceMonitor.enabled=true")
	require.NoError(t, err, rendered)
	require.Contains(t, decode(t, rendered).kinds, "ServiceMonitor")
	require.NotContains(t, decode(t, rendered).kinds, "PrometheusRule")
}

func TestWrongValuesAreRefused(t *testing.T) {
	for _, bad := range []string{
		"metrics.port=80", "metrics.port=many", "metrics.nvml=maybe", "pyroscope.url=pyroscope:4040", "gpuObservability.enable=true",
		"gpuObservability.gadgets.cudaAlloc.args={host}", "metrics.serviceMonitor.enabled=sometimes", "image.repository=", "gpuObservability.gadgets.nccl.enabled=true",
		"pyroscope.url=http://me:secret@pyroscope", "pyroscope.tokenSecret=My_Secret", "otlp.protocol=udp", "export.interval=0s", "export.queueSize=64", "export.inuse=often",
		"inspektor-gadget.enabled=maybe", "mode=both", "gpuObservability.gadgets.pyStack.params.limit=5", "inspektor-gadget.enabled=true,inspektor-gadget.config=none", "env[0].value=x", "env[0].name=A-B", "resources.limits.memory=much", "tolerations[0].effect=Never", "affinity.node=a",
		"grafana.dashboards.namespace=Grafana",
	} {
		out, err := template(t, "--set", bad)
		require.Error(t, err, bad)
		require.Contains(t, out, "values don't meet the specifications of the schema", bad)
	}
}

func TestLint(t *testing.T) {
	for _, values := range [][]string{nil, {"--values", "testdata/all.values.yaml"}} {
		out, err := run(t, append([]string{"lint", "--strict", "--kube-version", "1.30", chart}, values...)...)
		require.NoError(t, err, out)
		require.Contains(t, out, "0 chart(s) failed")
	}
}
