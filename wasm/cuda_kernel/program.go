// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

// Command cuda_kernel is the WASM module of the gadget cuda_kernel: names of stacks
// where our operators are not.
package main

import "github.com/gpu-gadgets/gpu-gadgets/wasm/names"

//go:wasmexport gadgetInit
func gadgetInit() int32 {
	return names.Init(names.Source{Name: "calls", IsTable: true}, names.Source{Name: "call_events"})
}

func main() {}
