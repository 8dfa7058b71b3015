// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	loaded "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
)

// awkward are texts that mean something in YAML, in templates, or to a shell.
var awkward = []string{
	"", " ", "a: b", "a\nb: c", "a\n---\napiVersion: v1\nkind: Pod\n", "a\n      - --host", `"`, `'`, `\`, "{{ .Release.Name }}", "{{",
	"# a", "a #b", "- a", "*a", "&a", "!a", "%a", "|", "{a}", "[a]", "true", "no", "null", "~", "1e3", "0x1f", "1_000", "2026-01-01", "a\tb",
	"\u0441", "\u2028", "\x00", "\xff", "$(A)", "`a`", "a,b=c",
}

// place is where a text is in the values.
type place []any

// textsOf lists the places of all texts, those of Inspektor Gadget's chart apart, in order.
func textsOf(v any, at place) (places []place) {
	switch v := v.(type) {
	case string:
		return []place{slices.Clone(at)}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if len(at) > 0 || key != "inspektor-gadget" && key != "global" {
				places = append(places, textsOf(v[key], append(at, key))...)
			}
		}
	case []any:
		for n := range v {
			places = append(places, textsOf(v[n], append(at, n))...)
		}
	}
	return places
}

func set(v any, at place, text string) any {
	if len(at) == 0 {
		return text
	}
	switch v := v.(type) {
	case map[string]any:
		v[at[0].(string)] = set(v[at[0].(string)], at[1:], text)
	case []any:
		v[at[0].(int)] = set(v[at[0].(int)], at[1:], text)
	}
	return v
}

// values are those of a file with more, and the chart's own, as JSON.
func values(t testing.TB, c *loaded.Chart, file string, more map[string]any) []byte {
	all, err := chartutil.ReadValuesFile(file)
	require.NoError(t, err)
	all = chartutil.CoalesceTables(more, all)
	b, err := json.Marshal(chartutil.CoalesceTables(all, c.Values))
	require.NoError(t, err)
	return b
}

func decodeValues(t testing.TB, b []byte) map[string]any {
	v := map[string]any{}
	require.NoError(t, json.Unmarshal(b, &v))
	return v
}

// render is helm template, in this process, for a release whose name is a number for YAML.
func render(c *loaded.Chart, v map[string]any) (string, error) {
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, operator[1], operator[3])
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "1e3", Namespace: "123"}, capabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			documents = append(documents, files[name])
		}
	}
	return strings.Join(documents, "\n---\n"), nil
}

// shape counts what the objects have: by kind, and in the containers.
func shape(o objects) map[string]int {
	n := map[string]int{}
	for _, kind := range o.kinds {
		n[kind]++
	}
	var pods []corev1.PodSpec
	if o.daemonSet != nil {
		pods = append(pods, o.daemonSet.Spec.Template.Spec)
	}
	if o.exporter != nil {
		pods = append(pods, o.exporter.Spec.Template.Spec)
	}
	for _, pod := range pods {
		n["volumes"] += len(pod.Volumes)
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			n["container"]++
			for what, count := range map[string]int{"command": len(c.Command), "args": len(c.Args), "env": len(c.Env), "ports": len(c.Ports), "mounts": len(c.VolumeMounts)} {
				n[what+" of "+c.Name] = count
			}
		}
	}
	return n
}

// base is a set of values, and what Kubernetes gets of it.
type base struct {
	values []byte
	places []place
	shape  map[string]int
}

type bases struct {
	chart *loaded.Chart
	all   []base
}

// newBases has what each mode of the chart needs.
func newBases(t testing.TB) bases {
	c, err := loader.Load(chart)
	require.NoError(t, err)
	c.SetDependencies() // without that of Inspektor Gadget, which is not ours
	b := bases{chart: c}
	for _, all := range [][]byte{
		values(t, c, "testdata/all.values.yaml", nil),
		values(t, c, "../../../charts/gpu-gadgets/values-daemon.yaml", nil),
		values(t, c, "testdata/all.values.yaml", map[string]any{
			"gpuObservability": map[string]any{"enabled": false},
			"exporter":         map[string]any{"enabled": true, "tlsSecret": "tls", "authorize": "kubernetes", "args": []any{"--label=a"}},
		}),
	} {
		normal, err := render(c, decodeValues(t, all))
		require.NoError(t, err, "else each text is refused")
		places := textsOf(decodeValues(t, all), nil)
		require.Greater(t, len(places), 20)
		b.all = append(b.all, base{all, places, shape(decode(t, normal))})
	}
	return b
}

// try has a text in a place of the values: it is refused, or it adds nothing to the objects that Kubernetes gets.
func (b bases) try(t *testing.T, mode, n uint, text string) (refused bool) {
	of := b.all[mode%uint(len(b.all))]
	at := of.places[n%uint(len(of.places))]
	rendered, err := render(b.chart, set(decodeValues(t, of.values), at, text).(map[string]any))
	if err != nil {
		requireRefusal(t, err)
		return true
	}
	for what, count := range shape(decode(t, rendered)) {
		require.LessOrEqual(t, count, of.shape[what], "%s: %v is %q", what, at, text)
	}
	return false
}

// Each text of awkward in each place; a third of both, unless there is time.
func TestAwkwardValuesAddNothing(t *testing.T) {
	b := newBases(t)
	tries, refused := 0, 0
	for mode := range b.all {
		for n := range b.all[mode].places {
			for k, text := range awkward {
				if (n+k)%3 == 0 || os.Getenv("LONG_TESTS") != "" {
					tries++
					if b.try(t, uint(mode), uint(n), text) {
						refused++
					}
				}
			}
		}
	}
	t.Logf("%d values, %d refused", tries, refused)
	require.Greater(t, tries-refused, tries/10)
}

// FuzzValues is TestAwkwardValuesAddNothing with any text.
func FuzzValues(f *testing.F) {
	b := newBases(f)
	for n, text := range awkward {
		f.Add(uint(n), uint(n), text)
	}
	f.Fuzz(func(t *testing.T, mode, n uint, text string) { b.try(t, mode, n, text) })
}

// requireRefusal fails if a template failed by accident.
func requireRefusal(t *testing.T, err error) {
	var schema chartutil.JSONSchemaValidationError
	if errors.As(err, &schema) || strings.Contains(err.Error(), "values don't meet the specifications of the schema") ||
		strings.Contains(err.Error(), "execution error at (") { // the function fail
		return
	}
	require.NoError(t, err, fmt.Sprintf("%T", err))
}
