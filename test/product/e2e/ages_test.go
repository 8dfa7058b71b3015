// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// byAge are a row's bytes, the youngest first.
func (r row) byAge() [6]uint64 {
	return [6]uint64{r.AgeSecond, r.AgeSeconds, r.AgeMinute, r.AgeMinutes, r.AgeHour, r.AgeOlder}
}

// TestAgesOfWhatALineHolds: blocks grow older from class to class while new ones come and old ones
// are freed; the classes of a row add up to what it holds, and so do the metrics.
func TestAgesOfWhatALineHolds(t *testing.T) {
	t.Parallel()
	w := subject.StartSteps(t)
	w.Load()
	r := start(t, "--pid", fmt.Sprint(w.PID()), "--ages", "--metrics-listen", "127.0.0.1:19471", "--metrics-nvml", "off")
	r.waitAttached(w.PID())
	ages := func(want [6]uint64) func([]row) bool {
		return func(rows []row) bool {
			for _, x := range rows {
				if x.Kind == "device" && x.Frame != "" && x.byAge() == want {
					return true
				}
			}
			return false
		}
	}
	const old, new = 3000000, 50000
	w.Do("alloc kv_cache 3 1000000")
	r.waitRows("they are young", w.PID(), ages([6]uint64{0, old}))
	r.waitRows("they are not so young", w.PID(), ages([6]uint64{0, 0, old}))
	w.Do("alloc kv_cache 10 5000")
	r.waitRows("new ones beside old ones", w.PID(), ages([6]uint64{0, new, old}))
	for _, x := range r.last(w.PID()) {
		if x.byAge() == [6]uint64{0, new, old} {
			require.Equal(t, "48.8 KiB <10s, 2.86 MiB <1m", x.Ages)
			require.EqualValues(t, old+new, x.InuseBytes)
		}
	}
	response, err := http.Get("http://127.0.0.1:19471/metrics")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`gpu_memory_age_bytes\{age="1m",.*kind="device".*\} 3e\+06\n`), string(text))

	w.Do("free kv_cache 2") // the oldest
	r.waitRows("the rest", w.PID(), func(rows []row) bool {
		var sum, inuse uint64
		for _, x := range rows {
			for _, bytes := range x.byAge() {
				sum += bytes
			}
			inuse += x.InuseBytes
		}
		truth := w.Truth()
		return inuse == truth.InUseBytes() && sum == inuse
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
}

// TestKindsOfRequestsAreToldApart: by the function of the server that took the blocks, although
// one line takes all of them; the one that keeps them costs 100 times as much as the other.
func TestKindsOfRequestsAreToldApart(t *testing.T) {
	s := startServer(t, "requests.py")
	r := start(t, "--pid", fmt.Sprint(s.PID()), "--torch", "on", "--ages")
	r.waitTorch(s)
	const block, chats, summaries = 512 << 10, 30, 2
	for range chats {
		s.say("chat")
	}
	for range summaries {
		s.say("summary")
	}
	type cost struct{ taken, held uint64 }
	of := func(rows []row, handler string) (c cost) {
		for _, x := range rows {
			if x.Kind == "tensor" && strings.Contains(x.Stack, handler) {
				require.Contains(t, x.Stack, "KVCache.append")
				c.taken, c.held = c.taken+x.AllocBytes, c.held+x.InuseBytes
			}
		}
		return c
	}
	r.waitRows("both kinds", s.PID(), func(rows []row) bool {
		return of(rows, "Server.chat") == cost{chats * block, 0} &&
			of(rows, "Server.summary") == cost{summaries * 100 * block, summaries * 100 * block}
	})
	code, _ := r.interrupt()
	require.Zero(t, code, r.errors())
}
