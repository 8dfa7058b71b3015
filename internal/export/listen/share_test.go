// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"io"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/netutil"
)

// remote is a connection from an address.
type remote struct {
	net.Conn
	from     string
	isClosed *bool
}

func (r remote) RemoteAddr() net.Addr {
	address, _ := net.ResolveTCPAddr("tcp", r.from)
	return address
}

func (r remote) Close() error { *r.isClosed = true; return nil }

// queue has connections of clients.
type queue struct {
	net.Listener
	waiting chan net.Conn
}

func (q queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.waiting:
		return c, nil
	default:
		return nil, io.EOF
	}
}

func (q queue) Addr() net.Addr { return remote{from: "192.0.2.9:9464"}.RemoteAddr() }

// connect lets an address connect so often, and returns those that were accepted, and how many were closed.
func (q queue) connect(l net.Listener, from string, times int) (accepted []net.Conn, closed int) {
	flags := make([]bool, times)
	for n := range times {
		q.waiting <- remote{from: from, isClosed: &flags[n]}
	}
	for range times {
		c, err := l.Accept()
		if err != nil {
			break
		}
		accepted = append(accepted, c)
	}
	for _, is := range flags {
		if is {
			closed++
		}
	}
	return accepted, closed
}

func TestAnAddressLeavesConnectionsToOthers(t *testing.T) {
	q := queue{waiting: make(chan net.Conn, 100)}
	var warnings []string
	s := newShares(q, func(text string) { warnings = append(warnings, text) })
	l := netutil.LimitListener(s, maxConnections)
	// A proxy, or the source address of a NodePort, can have many clients.
	first, closed := q.connect(l, "192.0.2.1:1000", maxConnections-maxOfAddress)
	require.Len(t, first, maxConnections-maxOfAddress)
	require.Zero(t, closed)
	require.Empty(t, warnings)
	_, closed = q.connect(l, "192.0.2.1:1000", 20)
	require.Equal(t, 20, closed)
	require.Equal(t, []string{"192.0.2.9:9464: a connection of 192.0.2.1/32 was closed: it has its share of 64 connections"}, warnings)
	for _, other := range []string{"192.0.2.2:1", "[2001:db8::1]:1"} { // Prometheus, a kubelet
		accepted, closed := q.connect(l, other, 2)
		require.Len(t, accepted, 2)
		require.Zero(t, closed)
	}
	network, closed := q.connect(l, "[2001:db8::ffff:2]:7", maxOfAddress-5)
	require.Len(t, network, maxOfAddress-5)
	require.Zero(t, closed)
	_, closed = q.connect(l, "[::ffff:192.0.2.1]:7", 1)
	require.Equal(t, 1, closed, "the same address")

	for range 2 { // closing twice counts once
		for _, c := range slices.Concat(first[:3], network) {
			require.NoError(t, c.Close())
		}
	}
	_, closed = q.connect(l, "192.0.2.1:1000", 10)
	require.Equal(t, 10, closed, "what is left is for others")
	_, closed = q.connect(l, "[2001:db8::ffff:2]:7", maxOfAddress-2)
	require.Zero(t, closed)
	_, closed = q.connect(l, "[2001:db8::ffff:3]:7", 1)
	require.Equal(t, 1, closed, "one network has one share")
	for _, c := range first[3:] {
		require.NoError(t, c.Close())
	}
	require.NotContains(t, s.open, client(remote{from: "192.0.2.1:1"}.RemoteAddr()), "addresses without connections take no memory")
}

// TestUsersOfTheMachineShareLoopback: they have more, and leave room to clients beyond it.
func TestUsersOfTheMachineShareLoopback(t *testing.T) {
	q := queue{waiting: make(chan net.Conn, 100)}
	l := netutil.LimitListener(newShares(q, func(string) {}), maxConnections)
	local, _ := q.connect(l, "127.0.0.1:1", 40)
	require.Len(t, local, 40)
	more, _ := q.connect(l, "127.9.9.9:1", 40)
	require.Len(t, more, maxOfMachine-40)
	beyond, _ := q.connect(l, "192.0.2.1:1", 16)
	require.Len(t, beyond, 16)
}
