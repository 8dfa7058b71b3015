// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/spf13/viper"
	"github.com/stretchr/testify/require"
)

// TestADaemonWritesNoFilesForItsClients, whatever else they ask for.
func TestADaemonWritesNoFilesForItsClients(t *testing.T) {
	for _, name := range []string{paramTrace, paramPage, paramEvents} {
		for _, idle := range []string{"", "0", "5"} {
			gc := gadgetcontext.New(t.Context(), "cuda_kernel", gadgetcontext.WithAsRemoteCall(true))
			_, err := gc.RegisterDataSource(datasource.TypeSingle, callEvents)
			require.NoError(t, err)
			_, err = New(Config{}).InstantiateDataOperator(gc, api.ParamValues{name: "/etc/cron.d/x", paramIdle: idle})
			require.ErrorContains(t, err, "operator.timeline."+name+": a daemon writes no files for its clients")
		}
	}
}

// TestResidentMemoryIsCountedInPagesOfThisKernel, which on arm64 have up to 64 KiB.
func TestResidentMemoryIsCountedInPagesOfThisKernel(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "cuda_kernel")
	gc.SetVar("config", viper.New())
	gc.SetVar("host_memory", false)
	gc.SetVar(pageShiftConstant, uint8(0))
	for name := range hostSizes {
		gc.SetVar(operators.MapSpecPrefix+name, &ebpf.MapSpec{})
	}
	require.NoError(t, startHost(gc, []string{"memory"}))
	shift, _ := gc.GetVar(pageShiftConstant)
	require.Equal(t, os.Getpagesize(), 1<<shift.(uint8))
}
