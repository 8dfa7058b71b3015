// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

// Command py_stack is the WASM module of the gadget py_stack: names of stacks
// where our operators are not.
package main

import "github.com/gpu-gadgets/gpu-gadgets/wasm/names"

//go:wasmexport gadgetInit
func gadgetInit() int32 {
	return names.Init(names.Source{Name: "samples", IsTable: true})
}

func main() {}
