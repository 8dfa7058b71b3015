// SPDX-License-Identifier: Apache-2.0

//go:build !(cgo && nvml)

package nvml

// Open needs cgo and the tag nvml.
func Open(string) (Library, error) { return nil, ErrNotBuilt }
