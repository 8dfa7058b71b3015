// SPDX-License-Identifier: Apache-2.0

package simranks

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// ServeRAS starts NCCL's RAS service on loopback, as far as its client knows it: a command is
// a line, and the connection ends after the answer to STATUS. It calls answer from a goroutine
// for each client, and ends with the test.
func ServeRAS(t testing.TB, answer func(command string) string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					command := lines.Text()
					if _, err := io.WriteString(c, answer(command)); err != nil || command == "STATUS" {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}
