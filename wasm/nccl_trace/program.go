// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

// Command nccl_trace is the WASM module of the gadget nccl_trace: names of stacks
// where our operators are not.
package main

import "github.com/gpu-gadgets/gpu-gadgets/wasm/names"

//go:wasmexport gadgetInit
func gadgetInit() int32 {
	return names.Init(names.Source{Name: "communicators", IsTable: true}, names.Source{Name: "operation_events"})
}

func main() {}
