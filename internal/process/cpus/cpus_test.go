// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOnline(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-2,5,7-8": {0, 1, 2, 5, 7, 8}} {
		got, err := parse(list)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, list := range []string{"", "a", "1-", "-1", "0-99999999999"} {
		_, err := parse(list)
		require.Error(t, err, list)
	}
	online, err := Online()
	require.NoError(t, err)
	require.NotEmpty(t, online)
}

func TestProcessorsThatCameAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		online, err := Online()
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var reports [][]int
		// As if the first had been offline when it began.
		go Watch(ctx, online[1:], func(came []int) { reports = append(reports, came) })
		synctest.Wait()
		for range 3 {
			time.Sleep(Period)
		}
		cancel()
		synctest.Wait()
		require.Equal(t, [][]int{online[:1]}, reports)
	})
}
