// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/stretchr/testify/require"
)

// run is a gadget with the table of processes.
type run struct {
	operators.GadgetContext
	isDaemon bool
}

func (run) GetVar(name string) (any, bool) { return nil, name == operators.MapSpecPrefix+processesMap }
func (run) GetVars() map[string]any        { return nil }
func (r run) IsRemoteCall() bool           { return r.isDaemon }

func (r run) ID() string {
	if r.isDaemon {
		return "instance"
	}
	return ""
}

func TestExitedProcessesAreForgottenAfter(t *testing.T) {
	for _, c := range []struct {
		value    string
		isDaemon bool
		want     time.Duration
	}{
		{"", false, 0},
		{"", true, forget},
		{"90s", false, 90 * time.Second},
		{"1h", true, time.Hour},
		{"30", false, 30 * time.Second},
	} {
		i, err := NewOperator().InstantiateDataOperator(run{isDaemon: c.isDaemon}, api.ParamValues{paramForget: c.value})
		require.NoError(t, err, c)
		require.Equal(t, c.want, i.(*instance).forget, c)
	}
	for _, wrong := range []string{"soon", "-1m", "9s"} {
		_, err := NewOperator().InstantiateDataOperator(run{}, api.ParamValues{paramForget: wrong})
		require.ErrorContains(t, err, "--forget-exited: want a duration of at least 10s", wrong)
	}
}
