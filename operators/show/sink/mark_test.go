// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
)

func TestMarksThatCannotBeSetAreRefused(t *testing.T) {
	for _, c := range []struct {
		want   string
		values api.ParamValues
	}{
		{"", api.ParamValues{}},
		{"", api.ParamValues{paramMark: "m", paramEvery: "1h", paramListen: "[::1]:9411"}},
		{"--mark-every needs --mark-out", api.ParamValues{paramEvery: "1h"}},
		{"--mark-listen needs --mark-out", api.ParamValues{paramListen: "127.0.0.1:1"}},
		{"--mark-on-frame needs --mark-out", api.ParamValues{paramFrame: "Trainer.save"}},
		{"want a function of Python", api.ParamValues{paramMark: "m", paramFrame: "Trainer.[save"}},
		{"want a function of Python", api.ParamValues{paramMark: "m", paramFrame: " "}},
		{"--mark-every: want a duration of at least 2s", api.ParamValues{paramMark: "m", paramEvery: "1s"}},
		{"can be reached from other machines", api.ParamValues{paramMark: "m", paramListen: "0.0.0.0:9411"}},
		{"want an address such as", api.ParamValues{paramMark: "m", paramListen: "localhost:9411"}},
		{"want an address such as", api.ParamValues{paramMark: "m", paramListen: ":9411"}},
	} {
		err := checkMarks(c.values)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

// A caller that waits for a mark gets an error when there will be none; pages of sites set none.
func TestMarksByHTTPEndWithTheRun(t *testing.T) {
	i, m := &instance{}, &marks{done: make(chan struct{})}
	call := func(origin string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/mark", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		i.serveMark(m, w, r)
		return w
	}
	require.Equal(t, http.StatusForbidden, call("https://example.com").Code)
	require.Empty(t, m.asked)
	close(m.done)
	w := call("")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "the run has ended\n", w.Body.String())
}
