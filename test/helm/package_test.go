// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const gadgetModule = "github.com/inspektor-gadget/inspektor-gadget"

// TestInspektorGadgetIsOfGoMod: the dependency is the version that ig-gpu is built
// from, and the packaged copy is that version's chart without a change.
func TestInspektorGadgetIsOfGoMod(t *testing.T) {
	command := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", gadgetModule)
	command.Dir = "../.."
	out, err := command.Output()
	require.NoError(t, err)
	version, source, _ := strings.Cut(strings.TrimSpace(string(out)), " ")

	var ours struct {
		Dependencies []struct{ Name, Alias, Version, Condition string }
	}
	text, err := os.ReadFile("../../charts/gpu-gadgets/Chart.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &ours))
	require.Len(t, ours.Dependencies, 1)
	require.Equal(t, strings.TrimPrefix(version, "v"), ours.Dependencies[0].Version)
	require.Equal(t, ours.Dependencies[0].Alias+".enabled", ours.Dependencies[0].Condition)

	n := 0
	for _, pattern := range []string{"values.yaml", "values.schema.json", "templates/*"} {
		files, err := filepath.Glob(filepath.Join(source, "charts/gadget", pattern))
		require.NoError(t, err)
		for _, file := range files {
			name, err := filepath.Rel(filepath.Join(source, "charts/gadget"), file)
			require.NoError(t, err)
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(chart, "charts/gadget", name))
			require.NoError(t, err)
			require.Equal(t, string(want), string(got), name)
			n++
		}
	}
	require.Greater(t, n, 10)
}

func TestInspektorGadgetIsInstalledWhenAskedFor(t *testing.T) {
	alone, err := template(t)
	require.NoError(t, err, alone)
	require.NotContains(t, alone, "charts/inspektor-gadget")
	both, err := template(t, "--set", "inspektor-gadget.enabled=true")
	require.NoError(t, err, both)

	// What was there stays as it was, and nothing is there twice.
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

func documents(rendered string) (all []string) {
	for _, d := range strings.Split("\n"+rendered, "\n---\n") {
		if strings.TrimSpace(d) != "" {
			all = append(all, strings.TrimSpace(d))
		}
	}
	return all
}

// TestSchemaKnowsEveryValue: each value of values.yaml has a type of its own, and
// nothing else is accepted, but where a value is a map of the user's.
func TestSchemaKnowsEveryValue(t *testing.T) {
	var values, schema map[string]any
	text, err := os.ReadFile("../../charts/gpu-gadgets/values.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &values))
	text, err = os.ReadFile("../../charts/gpu-gadgets/values.schema.json")
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
		// Its own schema knows the rest of the dependency's values.
		require.Equal(t, path != ".inspektor-gadget", schema["additionalProperties"] == false, path)
		for name := range properties {
			// Not every one is in values.yaml: a toleration has more, as Kubernetes does.
			if _, ok := inner[name]; !ok && !slices.Contains([]string{".global"}, path+"."+name) {
				require.True(t, strings.HasPrefix(path, ".affinity"), "%s.%s is not in values.yaml", path, name)
			}
		}
		for name, v := range inner {
			require.Contains(t, properties, name, path)
			walk(path+"."+name, v, resolve(properties[name]))
		}
	}
	walk("", values, schema)
	require.Greater(t, n, 60, fmt.Sprint(n))
}
