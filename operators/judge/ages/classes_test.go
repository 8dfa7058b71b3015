// SPDX-License-Identifier: Apache-2.0

package ages

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnAgeIsInOneClass(t *testing.T) {
	require.Len(t, Classes(), len(bounds)+1)
	for age, class := range map[time.Duration]string{
		0: "1s", time.Second: "1s", time.Second + 1: "10s", 10 * time.Second: "10s", time.Minute: "1m", 61 * time.Second: "10m",
		10 * time.Minute: "10m", time.Hour: "1h", time.Hour + 1: "older", 1000 * time.Hour: "older",
	} {
		var c byClass
		c.add(age, 7)
		c.add(age, 5)
		for n, name := range Classes() {
			want := uint64(0)
			if name == class {
				want = 12
			}
			require.Equal(t, want, c[n], "%s in %s", age, name)
		}
	}
}

func TestTextHasTheClassesThatAreNotEmpty(t *testing.T) {
	var c byClass
	require.Empty(t, c.String())
	c.add(5*time.Second, 12<<20)
	c.add(2*time.Hour, 3<<30)
	require.Equal(t, "12.0 MiB <10s, 3.00 GiB older", c.String())
}

func TestAgesAreOnOrOff(t *testing.T) {
	for text, want := range map[string]bool{"": false, "false": false, "true": true} {
		on, err := parseClasses(text)
		require.NoError(t, err)
		require.Equal(t, want, on)
	}
	_, err := parseClasses("10m")
	require.ErrorContains(t, err, `--ages: want true or false, not "10m"`)
}
