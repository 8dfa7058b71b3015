// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"gopkg.in/yaml.v3"
)

// gadgetList is build.yaml.
type gadgetList struct {
	Gadgets []gadget `yaml:"gadgets"`
}

// gadget is one entry of build.yaml.
type gadget struct {
	// Name is the argument of `ig-gpu run`, and the image's name.
	Name string `yaml:"name"`
	// Dir holds program.bpf.c and gadget.yaml. Default: gadgets/<name>.
	Dir string `yaml:"dir"`
	// CFlags are added to the compiler's command line.
	CFlags []string `yaml:"cflags"`
	// WASM is the Go package of the gadget's WASM module, if it has one.
	WASM *module `yaml:"wasm"`

	root string // directory of build.yaml
}

// module is the WASM module of a gadget.
type module struct {
	// Dir is the directory of the package main.
	Dir string `yaml:"dir"`
	// Operator does the same without WASM: where it is registered, as in
	// ig-gpu, the module is not run.
	Operator string `yaml:"operator"`
}

func (g gadget) path(elements ...string) string {
	return filepath.Join(append([]string{g.root, g.Dir}, elements...)...)
}

func (g gadget) source() string   { return g.path("program.bpf.c") }
func (g gadget) metadata() string { return g.path("gadget.yaml") }

// readList reads build.yaml, fills in defaults, and refuses mistakes: an unknown key, an
// invalid image name, a duplicate name.
func readList(path string) (*gadgetList, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read list of gadgets: %w", err)
	}
	list := &gadgetList{}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(list); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(list.Gadgets) == 0 {
		return nil, fmt.Errorf("read %s: %w", path, errors.New("no gadgets listed"))
	}
	validName := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for i := range list.Gadgets {
		g := &list.Gadgets[i]
		if !validName.MatchString(g.Name) {
			return nil, fmt.Errorf("read %s: gadget name %q is not lower_case_words", path, g.Name)
		}
		if seen[g.Name] {
			return nil, fmt.Errorf("read %s: gadget %s is listed twice", path, g.Name)
		}
		seen[g.Name] = true
		if g.Dir == "" {
			g.Dir = filepath.Join("gadgets", g.Name)
		}
		if g.WASM != nil && (g.WASM.Dir == "" || g.WASM.Operator == "") {
			return nil, fmt.Errorf("read %s: gadget %s: wasm needs dir and operator", path, g.Name)
		}
		g.root = filepath.Dir(path)
	}
	return list, nil
}
