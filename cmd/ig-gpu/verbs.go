// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"github.com/cilium/ebpf/features"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/containers"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/demo"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/engine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/runner"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/verb"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/console"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/nvml"
)

// verbConfig describes this program and this machine to verbs.
func verbConfig(runtime *runner.Runtime, terminal *console.Terminal) verb.Config {
	this := machine.This()
	return verb.Config{
		Engine: engine.New(runtime), Terminal: terminal, Console: terminal, ProcFS: host.HostProcFs, Demo: demo.Embedded(),
		Machine: verb.Machine{
			Release: this.Release, IsRoot: this.EffectiveUser == 0, BTF: this.BTF, Sys: "/sys",
			Capabilities:  verb.EffectiveCapabilities(filepath.Join("/proc", "self")),
			LoadSleepable: this.LoadSleepable, HasContainers: containers.HasRuntime,
			HasMulti: func() bool { return features.HaveBPFLinkUprobeMulti() == nil },
			OpenNVML: func() (nvml.Library, error) { return nvml.Open("") },
			OpenGPUs: func() (nvml.Library, error) {
				return nvml.OpenAll("", nvml.BridgePins(host.HostRoot), nvml.SysFS, host.HostProcFs)
			},
		},
	}
}
