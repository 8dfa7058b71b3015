// SPDX-License-Identifier: Apache-2.0

// Command schemas makes JSON schemas of the kinds of Kubernetes from its OpenAPI document
// (api/openapi-spec/swagger.json of the module k8s.io/kubernetes), named as kubeconform
// expects:
//
//	schemas SWAGGER DIRECTORY
//
// The schemas are strict: an unknown field is an error.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type object = map[string]any

const shared = "_definitions.json"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: schemas SWAGGER DIRECTORY")
		os.Exit(2)
	}
	n, err := write(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
	fmt.Printf("    schemas of %d kinds\n", n)
}

func write(swagger, dir string) (kinds int, err error) {
	raw, err := os.ReadFile(swagger)
	if err != nil {
		return 0, fmt.Errorf("read Kubernetes' OpenAPI document: %w", err)
	}
	var document struct {
		Definitions map[string]object
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		return 0, fmt.Errorf("read %s: %w", swagger, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	for name, d := range document.Definitions {
		document.Definitions[name] = strict(d).(object)
		special(name, document.Definitions[name])
	}
	if err := save(filepath.Join(dir, shared), object{"definitions": document.Definitions}); err != nil {
		return 0, err
	}
	for name, d := range document.Definitions {
		for _, file := range files(d) {
			if err := save(filepath.Join(dir, file), object{"$ref": shared + "#/definitions/" + name}); err != nil {
				return 0, err
			}
			kinds++
		}
	}
	if kinds == 0 {
		return 0, fmt.Errorf("no kinds in %s", swagger)
	}
	return kinds, nil
}

// strict closes every object and makes references relative to the shared file, in
// which they stay valid.
func strict(v any) any {
	switch v := v.(type) {
	case object:
		for k, x := range v {
			v[k] = strict(x)
		}
		_, hasProperties := v["properties"].(object)
		_, isOpen := v["additionalProperties"]
		if hasProperties && !isOpen && v["x-kubernetes-preserve-unknown-fields"] == nil {
			v["additionalProperties"] = false
		}
		// OpenAPI's way to say "a number or a string".
		if v["format"] == "int-or-string" {
			v["type"] = []any{"string", "integer"}
		}
		if hasProperties {
			nullable(v)
		}
	case []any:
		for i := range v {
			v[i] = strict(v[i])
		}
	}
	return v
}

// nullable lets optional fields be null, which Kubernetes reads as absent.
func nullable(v object) {
	properties, _ := v["properties"].(object)
	required, _ := v["required"].([]any)
	for name, p := range properties {
		property, ok := p.(object)
		if !ok || slices.Contains(required, any(name)) {
			continue
		}
		switch t := property["type"].(type) {
		case string:
			property["type"] = []any{t, "null"}
		case []any:
			property["type"] = append(t, "null")
		default:
			properties[name] = object{"anyOf": []any{property, object{"type": "null"}}}
		}
	}
}

// special are types that the document defines too narrowly: YAML may have a quantity as a number.
func special(name string, d object) {
	if strings.HasSuffix(name, ".resource.Quantity") {
		d["type"] = []any{"string", "number"}
	}
}

// files are the names of a definition that is a kind: kubeconform's
// {{.ResourceKind}}{{.KindSuffix}}, that is kind-group-version in lower case with the
// group up to its first dot.
func files(d object) (names []string) {
	versions, _ := d["x-kubernetes-group-version-kind"].([]any)
	for _, one := range versions {
		v, _ := one.(object)
		group, _ := v["group"].(string)
		version, _ := v["version"].(string)
		kind, _ := v["kind"].(string)
		group, _, _ = strings.Cut(group, ".")
		parts := []string{kind}
		if group != "" {
			parts = append(parts, group)
		}
		names = append(names, strings.ToLower(strings.Join(append(parts, version), "-"))+".json")
	}
	return names
}

func save(file string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}
