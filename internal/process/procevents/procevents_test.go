// SPDX-License-Identifier: Apache-2.0

package procevents

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAStartedProcessIsSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("perf events of other processes need root; the uid is not 0")
	}
	r, err := Open()
	require.NoError(t, err)
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan Event, 10000)
	done := make(chan error)
	go func() {
		done <- r.Run(ctx, func(_ uint32, path []byte) bool {
			return strings.Contains(string(path), "libc.so")
		}, func(batch []Event) {
			for _, e := range batch {
				events <- e
			}
		})
	}()
	cmd := exec.Command("sh", "-c", "exit 0")
	require.NoError(t, cmd.Run())
	var kinds []Kind
	timeout := time.After(time.Minute)
	for len(kinds) == 0 || kinds[len(kinds)-1] != Exit {
		select {
		case e := <-events:
			if e.PID == uint32(cmd.Process.Pid) {
				kinds = append(kinds, e.Kind)
			}
		case <-timeout:
			t.Fatalf("only saw %v", kinds)
		}
	}
	require.Equal(t, []Kind{Fork, Exec, Map, Exit}, kinds)
	cancel()
	require.NoError(t, <-done)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x0a\x00\x00\x00\x00\x00\x60\x00" + strings.Repeat("a", 88)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 8 {
			return // read never passes less than a header
		}
		parse(b, func(uint32, []byte) bool { return true })
	})
}
