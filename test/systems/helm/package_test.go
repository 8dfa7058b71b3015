// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestInspektorGadgetIsInstalledOnRequest(t *testing.T) {
	alone, err := template(t)
	require.NoError(t, err, alone)
	require.NotContains(t, alone, "charts/inspektor-gadget")
	both, err := template(t, "--set", "inspektor-gadget.enabled=true")
	require.NoError(t, err, both)

	// Existing entries stay, and there are no duplicates.
	seen := map[string]bool{}
	for _, d := range documents(both) {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(d), &head))
		id := head.Kind + " " + head.Metadata.Name
		require.False(t, seen[id], id)
		seen[id] = true
	}
	for _, id := range []string{"DaemonSet gadget", "DaemonSet gpu-gpu-gadgets", "ServiceAccount gadget", "ServiceAccount gpu-gpu-gadgets"} {
		require.True(t, seen[id], id)
	}
	for _, d := range documents(alone) {
		require.Contains(t, both, d)
	}
}

// TestDaemonIsConfigured: values-daemon.yaml is applied to the daemon's file.
func TestDaemonIsConfigured(t *testing.T) {
	rendered, err := template(t, "--values", "../../../charts/gpu-gadgets/values-daemon.yaml", "--set", "inspektor-gadget.config.operator.export.pyroscope-tenant=gpu")
	require.NoError(t, err, rendered)
	for _, d := range documents(rendered) {
		var config struct {
			Kind     string
			Metadata struct{ Name string }
			Data     map[string]string
		}
		require.NoError(t, yaml.Unmarshal([]byte(d), &config))
		if config.Kind != "ConfigMap" || config.Metadata.Name != "gadget" {
			continue
		}
		var file struct{ Operator map[string]map[string]any }
		require.NoError(t, yaml.Unmarshal([]byte(config.Data["config.yaml"]), &file))
		require.Equal(t, map[string]any{"pyroscope-url": "http://pyroscope.observability:4040", "pyroscope-tenant": "gpu", "cluster": "prod"}, file.Operator["export"])
		require.Equal(t, map[string]any{"metrics-listen": ":9464", "metrics-cluster": "prod"}, file.Operator["metrics"])
		require.Contains(t, file.Operator["kubemanager"], "hook-mode", "defaults are kept")
		return
	}
	require.Fail(t, "no ConfigMap gadget")
}

func documents(rendered string) (all []string) {
	for _, d := range strings.Split("\n"+rendered, "\n---\n") {
		if strings.TrimSpace(d) != "" {
			all = append(all, strings.TrimSpace(d))
		}
	}
	return all
}

// TestImagesArePinned: the values that `make images` writes are the chart's.
func TestImagesArePinned(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	rendered, err := template(t, "--set", "mode=daemon", "--set", "gadgetImages.repository=registry.example/gpu", "--set", "gadgetImages.tag=v1",
		"--set", "gadgetImages.digests.cuda_alloc="+digest, "--set", "gpuObservability.gadgets.pyStack.enabled=true")
	require.NoError(t, err, rendered)
	require.Contains(t, rendered, `gadgetImage: "registry.example/gpu/cuda_alloc:v1@`+digest+"\"\n")
	require.Contains(t, rendered, "gadgetImage: \"registry.example/gpu/py_stack:v1\"\n")
	rendered, err = template(t, "--set", "mode=daemon", "--set", "gadgetImages.digests.cuda_alloc=v1")
	require.Error(t, err, rendered)
}
