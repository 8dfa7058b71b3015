// SPDX-License-Identifier: Apache-2.0

package series

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

func TestServiceIsTheUsualName(t *testing.T) {
	for _, c := range []struct {
		process profile.Process
		want    string
	}{
		{profile.Process{Comm: "python3", Container: "server", Workload: "llm"}, "llm"},
		{profile.Process{Comm: "python3", Container: "server"}, "server"},
		{profile.Process{Comm: "python3"}, "python3"},
		{profile.Process{}, "unknown"},
	} {
		require.Equal(t, c.want, Config{}.Key(profile.Row{Process: c.process}).Service)
	}
}

func TestProcessesOfOnePodAreOneSeriesByDefault(t *testing.T) {
	row := func(pid uint32, device int32, kind string) profile.Row {
		return profile.Row{Process: profile.Process{ID: uint64(pid), PID: pid, Comm: "python3", Namespace: "ml", Pod: "llm-0", Container: "server"},
			Device: device, Kind: kind}
	}
	rows := []profile.Row{row(7, 0, "device"), row(8, 0, "device"), row(7, 1, "device"), row(7, profile.UnknownDevice, "host")}
	config := Config{Cluster: "c1", Node: "n1", GPU: func(p profile.Process, device int32) string {
		if device == 1 {
			return "GPU-abc"
		}
		return ""
	}}
	base := Key{Service: "server", Cluster: "c1", Node: "n1", Namespace: "ml", Pod: "llm-0", Container: "server", Kind: "device"}
	first, second, third := base, base, base
	first.Device, second.Device, second.GPU, third.Device, third.Kind = "0", "1", "GPU-abc", "unknown", "host"
	got := config.Group(rows)
	require.Len(t, got, 3)
	require.Equal(t, []Key{first, second, third}, []Key{got[0].Key, got[1].Key, got[2].Key})
	require.Equal(t, rows[:2], got[0].Rows)

	config.PIDs = true
	require.Len(t, config.Group(rows), 4)
	require.Equal(t, "7", config.Group(rows)[0].PID)
}

func TestLevelsAreAProfileOfTheirOwn(t *testing.T) {
	for _, s := range Shapes(profile.Memory, 0, Levels{Inuse: true, Peak: true}) {
		for _, c := range s.Columns {
			require.Equal(t, !strings.Contains(c.Type, "alloc"), s.IsLevel, c.Type)
			require.Equal(t, strings.HasPrefix(s.Name, "torch"), strings.HasPrefix(c.Type, "tensor"), s.Name)
		}
	}
	require.Len(t, Shapes(profile.Memory, 0, Levels{}), 2)
	require.Equal(t, int64(10_000_000), Shapes(profile.CPU, 10*time.Millisecond, Levels{})[0].Period)
	require.Equal(t, "wall", Shapes(profile.Wall, time.Second, Levels{})[0].Columns[1].Type)
}
