// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const text = `# HELP held_bytes What is held, by {kind}.
# TYPE held_bytes gauge
held_bytes{pid="1",kind="device memory"} 4096
held_bytes{pid="1",kind="} 9"} 1e+06
held_bytes{pid="2",kind="managed"} 0.5
held_bytes_total{pid="1"} 7
up 1
`

func TestSumAddsUpTheSeriesThatHaveTheLabels(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	all, err := Scrape(t, address)
	require.NoError(t, err)
	require.Len(t, all, 4)
	require.Equal(t, Series{"held_bytes", `pid="1",kind="device memory"`, 4096}, all[0])
	for _, c := range []struct {
		labels []string
		sum    float64
		found  bool
	}{
		{nil, 1004096.5, true},
		{[]string{`pid="1"`}, 1004096, true},
		{[]string{`pid="1"`, `kind="} 9"`}, 1e6, true},
		{[]string{`pid="2"`, `kind="} 9"`}, 0, false},
	} {
		sum, found := Sum(t, address, "held_bytes", c.labels...)
		require.Equal(t, c.sum, sum, c.labels)
		require.Equal(t, c.found, found, c.labels)
	}
}

func TestAFreeAddressHasNoListener(t *testing.T) {
	_, err := Scrape(t, FreeAddress(t))
	require.ErrorContains(t, err, "connection refused")
	_, found := Sum(t, FreeAddress(t), "up")
	require.False(t, found)
}
