// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	metadatav1 "github.com/inspektor-gadget/inspektor-gadget/pkg/metadata/v1"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// rowsOf gives the row's struct of every data source of a program, by the
// variables that Inspektor Gadget's macros declare.
func rowsOf(t *testing.T, spec *ebpf.CollectionSpec) map[string]*btf.Struct {
	t.Helper()
	rows := map[string]*btf.Struct{}
	for typ, err := range spec.Types.All() {
		require.NoError(t, err)
		variable, ok := typ.(*btf.Var)
		if !ok {
			continue
		}
		name, ok := strings.CutPrefix(variable.Name, "unusedevent_")
		if !ok {
			if name, ok = strings.CutPrefix(variable.Name, "gadget_tracer_"); !ok {
				continue
			}
		}
		parts := strings.Split(name, "___")
		var row *btf.Struct
		require.NoError(t, spec.Types.TypeByName(parts[len(parts)-1], &row), name)
		rows[parts[0]] = row
	}
	return rows
}

// TestEveryFieldIsDescribed checks that each field that ig shows has a description in
// gadget.yaml, and that a number has its unit there or in its name.
func TestEveryFieldIsDescribed(t *testing.T) {
	list, err := readList("../../build.yaml")
	require.NoError(t, err)
	for _, g := range list.Gadgets {
		object := "../../build/bpf/" + g.Name + "/" + runtime.GOARCH + ".bpf.o"
		require.FileExists(t, object, "run make build")
		spec, err := ebpf.LoadCollectionSpec(object)
		require.NoError(t, err)
		content, err := os.ReadFile(g.metadata())
		require.NoError(t, err)
		var metadata metadatav1.GadgetMetadata
		require.NoError(t, yaml.Unmarshal(content, &metadata))

		rows := rowsOf(t, spec)
		require.NotEmpty(t, rows)
		for source, row := range rows {
			require.Contains(t, metadata.DataSources, source, g.Name)
			fields := metadata.DataSources[source].Fields
			described := func(name string) {
				require.NotEmpty(t, fields[name].Annotations[metadatav1.DescriptionAnnotation],
					"%s: %s.%s has no description", g.Name, source, name)
			}
			hasStack := false
			for _, member := range row.Members {
				described(member.Name)
				if base, isRaw := strings.CutSuffix(member.Name, "_raw"); isRaw {
					described(base) // output of ig's formatters
				}
				if target := fields[member.Name].Annotations["formatters.bytes.target"]; target != "" {
					described(target)
				}
				hasStack = hasStack || member.Name == "stack_id"
			}
			if hasStack {
				for _, name := range []string{"frame", "stack", "frames"} {
					described(name)
				}
			}
		}
	}
}
