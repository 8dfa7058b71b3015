// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRowsTakeOneTwentiethOfAProcessor(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name              string
		wall, used, pause time.Duration
		isNew             bool
	}{
		{"few rows", 2 * ms, 2 * ms, 38 * ms, false},
		{"many rows", 105 * ms, 100 * ms, 1900 * ms, true},
		{"rows of minutes", time.Minute, time.Minute, 10 * time.Second, true},
		{"others wanted the processor", 800 * ms, 3 * ms, 57 * ms, false},
		{"other goroutines used the other processors", 4 * ms, 90 * ms, 76 * ms, false},
	} {
		p := &pace{}
		began := moment{time.Unix(100, 0), time.Second}
		p.begin(began)
		end := moment{began.wall.Add(c.wall), began.used + c.used}
		pause, isNew := p.end(end)
		require.Equal(t, c.pause, pause, c.name)
		require.Equal(t, c.isNew, isNew, c.name)
		_, isNew = p.end(end)
		require.False(t, isNew, "reported once")
	}
}

func TestTheEndOfARunEndsAPause(t *testing.T) {
	i := &instance{ended: make(chan struct{})}
	waited := make(chan struct{})
	go func() {
		i.wait(time.Hour)
		close(waited)
	}()
	require.NoError(t, i.PreStop(nil))
	<-waited
	require.NoError(t, i.Stop(nil))
	i.wait(time.Hour) // the last rows
}

func TestTheProcessorTimeOfThisProcessGrows(t *testing.T) {
	for before := now(); now().used <= before.used; {
	}
}
