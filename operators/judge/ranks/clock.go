// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

func bootTime() collective.Time { return collective.Time(ig.SinceBoot()) }

// oneLine keeps what a process calls itself from driving a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\ufffd'
		}
		return r
	}, s)
}
