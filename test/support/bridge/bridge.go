// SPDX-License-Identifier: Apache-2.0

// Package bridge runs Inspektor Gadget's bridge to the GPU for tests, with made-up GPUs.
package bridge

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gpu-ebpf-bridge/maps"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gpu-ebpf-bridge/nvml"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gpu-ebpf-bridge/poller"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// GPUs replaces NVML for the bridge, always with the same answers.
type GPUs struct {
	nvml.Poller
	All       []nvml.DeviceSnapshot
	Processes []nvml.ProcessSample
}

// Init implements nvml.Poller.
func (GPUs) Init() error { return nil }

// Close implements nvml.Poller.
func (GPUs) Close() error { return nil }

// Devices implements nvml.Poller.
func (g GPUs) Devices(context.Context) ([]nvml.DeviceSnapshot, error) { return g.All, nil }

// ProcessSamples implements nvml.Poller.
func (g GPUs) ProcessSamples(context.Context, uint64) ([]nvml.ProcessSample, error) {
	return g.Processes, nil
}

// Start runs the bridge until the test ends, or stop is called. pins is a separate BPF
// file system, in which the maps stay until the test ends.
func Start(t *testing.T, gpus GPUs) (pins string, stop func()) {
	t.Helper()
	bpftest.RequireRoot(t)
	pins = t.TempDir()
	require.NoError(t, syscall.Mount("bpf", pins, "bpf", 0, ""))
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(pins, 0)) })
	written, err := maps.Open(pins)
	require.NoError(t, err)
	p, err := poller.New(poller.Config{Source: gpus, Bridge: written, PollInterval: 20 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, written.Close())
	})
	t.Cleanup(stop)
	return pins, stop
}
