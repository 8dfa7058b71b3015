// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"strings"
	"testing"
)

func TestSharesOfOtherTools(t *testing.T) {
	for _, c := range []struct {
		text string
		read func(string) (shares, error)
		want shares
	}{
		{"# austin: 3.7.0\n# interval: 10101\n\nP7;T0:7;/a.py:<module>:1;/a b.py:f:3 10106\nP7;T0:7;/a.py:<module>:1;/a b.py:f:4 20199\nP7;T0:7;/a.py:<module>:9 10100\nP7;T0:8 1\n# duration: 5\n",
			func(s string) (shares, error) { return readAustin(strings.NewReader(s)) }, shares{"f": 2, "<module>": 1}},
		{"<module> (a.py:1);f (a b.py:3) 7\n<module> (a.py:1);f (a b.py:4) 2\n",
			func(s string) (shares, error) { return readPySpy(strings.NewReader(s)) }, shares{"f": 9}},
	} {
		got, err := c.read(c.text)
		if err != nil || !maps.Equal(got, c.want) {
			t.Errorf("%v, %v: want %v", got, err, c.want)
		}
	}
	if _, err := readPySpy(strings.NewReader("f (a.py:1) many\n")); err == nil {
		t.Error("a line without a number is taken")
	}
}
