// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// module is a Go module, or another package with a version.
type module struct{ path, version string }

// bill writes a software bill of materials as CycloneDX 1.5 in JSON.
func bill(name, version string, kind cyclonedx.ComponentType, parts []module, made time.Time) ([]byte, error) {
	b := cyclonedx.NewBOM()
	b.SerialNumber = "" // a random number would differ each time
	b.Metadata = &cyclonedx.Metadata{
		Timestamp: made.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: name, Type: kind, Name: name, Version: version,
			Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
		},
	}
	slices.SortFunc(parts, func(a, b module) int { return strings.Compare(a.path, b.path) })
	components := []cyclonedx.Component{}
	for _, m := range slices.Compact(parts) {
		url := "pkg:golang/" + m.path + "@" + m.version
		if strings.HasPrefix(m.path, "pkg:") {
			url = m.path + "@" + m.version
		}
		components = append(components, cyclonedx.Component{
			BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: strings.TrimPrefix(m.path, "pkg:"), Version: m.version, PackageURL: url,
		})
	}
	b.Components = &components
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	if err := encoder.EncodeVersion(b, cyclonedx.SpecVersion1_5); err != nil {
		return nil, fmt.Errorf("write the bill of materials of %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// modulesOf are those that a Go program was built of, and Go itself.
func modulesOf(program []byte) ([]module, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	all := []module{{"std", strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, module{m.Path, m.Version})
	}
	return all, nil
}

func billOfProgram(program []byte, name, version string, made time.Time) ([]byte, error) {
	parts, err := modulesOf(program)
	if err != nil {
		return nil, fmt.Errorf("read what %s was built of: %w", name, err)
	}
	return bill(name, version, cyclonedx.ComponentTypeApplication, parts, made)
}
