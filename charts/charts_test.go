// SPDX-License-Identifier: Apache-2.0

// Package charts checks what can be checked of the chart without Helm, which is a
// large download; `make test-chart` does the rest.
package charts

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	chart        = "gpu-gadgets"
	gadgetModule = "github.com/inspektor-gadget/inspektor-gadget"
)

// TestInspektorGadgetIsOfGoMod: the dependency is the version that ig-gpu is built
// from, and the assembled copy is that version's chart without a change.
func TestInspektorGadgetIsOfGoMod(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", gadgetModule).Output()
	require.NoError(t, err)
	version, source, _ := strings.Cut(strings.TrimSpace(string(out)), " ")

	var ours struct {
		Dependencies []struct{ Name, Alias, Version, Condition string }
	}
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &ours))
	require.Len(t, ours.Dependencies, 1)
	require.Equal(t, strings.TrimPrefix(version, "v"), ours.Dependencies[0].Version)
	require.Equal(t, ours.Dependencies[0].Alias+".enabled", ours.Dependencies[0].Condition)

	assemble := exec.Command("../scripts/chart.sh")
	assemble.Env = append(os.Environ(), "CHARTS_OUT="+t.TempDir())
	assembled, err := assemble.Output()
	require.NoError(t, err)
	n := 0
	for _, pattern := range []string{"values.yaml", "values.schema.json", "templates/*"} {
		files, err := filepath.Glob(filepath.Join(source, "charts/gadget", pattern))
		require.NoError(t, err)
		for _, file := range files {
			name, err := filepath.Rel(filepath.Join(source, "charts/gadget"), file)
			require.NoError(t, err)
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(assembled)), "charts/gadget", name))
			require.NoError(t, err)
			require.Equal(t, string(want), string(got), name)
			n++
		}
	}
	require.Greater(t, n, 10)
}

// TestSchemaKnowsEveryValue: each value of values.yaml has a type of its own, and
// nothing else is accepted, but where a value is a map of the user's.
func TestSchemaKnowsEveryValue(t *testing.T) {
	var values, schema map[string]any
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &values))
	text, err = os.ReadFile(filepath.Join(chart, "values.schema.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &schema))
	definitions := schema["definitions"].(map[string]any)
	resolve := func(s any) map[string]any {
		m := s.(map[string]any)
		if ref, ok := m["$ref"].(string); ok {
			return definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
		}
		return m
	}
	n := 0
	var walk func(path string, value any, schema map[string]any)
	walk = func(path string, value any, schema map[string]any) {
		n++
		require.True(t, schema["type"] != nil || schema["enum"] != nil, "%s has no type", path)
		inner, isMap := value.(map[string]any)
		properties, isClosed := schema["properties"].(map[string]any)
		if !isMap || !isClosed {
			return
		}
		// The dependency's own schema knows the rest of its values.
		require.Equal(t, path != ".inspektor-gadget", schema["additionalProperties"] == false, path)
		for name := range properties {
			if _, ok := inner[name]; !ok && path+"."+name != ".global" {
				require.Equal(t, ".affinity", path, "%s.%s is not in values.yaml", path, name)
			}
		}
		for name, v := range inner {
			require.Contains(t, properties, name, path)
			walk(path+"."+name, v, resolve(properties[name]))
		}
	}
	walk("", values, schema)
	require.Greater(t, n, 60)
}

// Helm packages what these link to.
func TestFilesAreThoseOfTheRepository(t *testing.T) {
	for _, name := range []string{"gpu-gadgets.json", "alerts.yaml", "alerts-full.yaml", "nccl.yaml"} {
		at, err := filepath.EvalSymlinks(filepath.Join(chart, "files", name))
		require.NoError(t, err)
		require.Equal(t, filepath.Join("..", "dashboards", name), at)
	}
}
