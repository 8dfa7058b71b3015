// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/registry"
)

func TestInputThatPeopleWrite(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"run cuda_alloc --pid 7", "run cuda_alloc --host --pid 7"},
		{"--verbose run cuda_alloc --pid=7 --timeout 30s", "--verbose run cuda_alloc --host --pid=7 --timeout 30"},
		{"run cuda_alloc --host --pid 7", "run cuda_alloc --host --pid 7"},
		{"run cuda_alloc --host=false --pid 7", "run cuda_alloc --host=false --pid 7"},
		{"run cuda_alloc -c trainer --pid 7", "run cuda_alloc -c trainer --pid 7"},
		{"run cuda_alloc --k8s-podname trainer --pid 7", "run cuda_alloc --k8s-podname trainer --pid 7"},
		{"run cuda_alloc", "run cuda_alloc"},
		{"run cuda_alloc --timeout=2m", "run cuda_alloc --timeout=120"},
		{"run cuda_alloc -t 1m30s", "run cuda_alloc -t 90"},
		{"run cuda_alloc --timeout soon", "run cuda_alloc --timeout soon"},
		{"run cuda_alloc --timeout", "run cuda_alloc --timeout"},
		{"run nccl_trace --hang 45 --straggler=20ms", "run nccl_trace --hang 45s --straggler=20ms"},
		{"run cuda_alloc --older-than=90", "run cuda_alloc --older-than=1m30s"},
		{"run cuda_alloc --older-than soon", "run cuda_alloc --older-than soon"},
		{"run cuda_alloc --pprof-out - --host", "run --output=none cuda_alloc --pprof-out /dev/stdout --host"},
		{"run cuda_kernel --host --timeline-html=- -o json", "run cuda_kernel --host --timeline-html=/dev/stdout -o json"},
		{"run cuda_alloc --pprof-out a-", "run cuda_alloc --pprof-out a-"},
		{"run cuda_alloc -- --pid 7", "run cuda_alloc -- --pid 7"},
		{"leaks --pid 7", "leaks --pid 7"},
	} {
		got, err := acceptInput(strings.Fields(c.given))
		require.NoError(t, err, c.given)
		require.Equal(t, c.want, strings.Join(got, " "))
	}
}

func TestInputThatWouldTraceTheWholeMachineIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"run", "cuda_alloc", "--pid", ""}, {"run", "cuda_alloc", "--pid="}, {"run", "cuda_alloc", "--host", "--pid", " \n"},
		{"run", "cuda_alloc", "--pid"},
	} {
		_, err := acceptInput(args)
		require.ErrorIs(t, err, errNoProcess)
	}
	_, err := acceptInput([]string{"run", "cuda_alloc", "--timeout", "500ms"})
	require.ErrorContains(t, err, "whole seconds")
}

func TestEveryFlagForADurationIsKnown(t *testing.T) {
	var found []string
	for _, operator := range registry.Own(registry.Config{}) {
		for _, p := range append(operator.GlobalParams(), operator.InstanceParams()...) {
			if p.TypeHint == api.TypeDuration {
				found = append(found, p.Key)
			}
		}
	}
	require.Subset(t, durationFlags, found)
	require.Len(t, found, len(durationFlags)-2, "two are of Inspektor Gadget")
}
