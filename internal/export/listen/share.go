// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"net"
	"net/netip"
	"sync"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// shares is a listener that leaves its last connections to addresses with few: it closes further ones of others.
type shares struct {
	net.Listener
	warn    func(string)
	refused throttle.Throttle

	mu    sync.Mutex
	open  map[netip.Prefix]int // connections by who shares them; none is 0
	total int                  // of all
}

func newShares(l net.Listener, warn func(string)) *shares {
	return &shares{Listener: l, warn: warn, open: map[netip.Prefix]int{}}
}

// client returns the addresses that count as one client: one, or the /64 of one of IPv6, which an owner has as a whole. All loopback
// addresses are one, because any user of the machine has all of them.
func client(of net.Addr) netip.Prefix {
	tcp, ok := of.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := address.BitLen()
	switch {
	case address.IsLoopback():
		address, bits = netip.IPv6Loopback(), 128
	case address.Is6():
		bits = 64
	}
	prefix, err := address.Prefix(bits)
	if err != nil { // of no address
		return netip.Prefix{}
	}
	return prefix
}

// Accept implements net.Listener.
func (s *shares) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		of := client(conn.RemoteAddr())
		if s.take(of) {
			return &counted{Conn: conn, release: sync.OnceFunc(func() { s.release(of) })}, nil
		}
		_ = conn.Close()
		s.report(of)
	}
}

// report warns of a connection that was closed, at most once a minute.
func (s *shares) report(of netip.Prefix) {
	s.refused.Warn(s.warn, "%s: a connection of %s was closed: it has its share of %d connections", s.Addr(), of, maxConnections)
}

// take reports whether a client may have another connection, and counts it. Many clients can have one address, behind a
// proxy, so that a share matters only where others need what is left.
func (s *shares) take(of netip.Prefix) bool {
	most := maxOfAddress
	if of.Addr().IsLoopback() {
		most = maxOfMachine
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[of] >= most && s.total >= maxConnections-maxOfAddress {
		return false
	}
	s.open[of]++
	s.total++
	return true
}

func (s *shares) release(of netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.open[of]--; s.open[of] == 0 {
		delete(s.open, of)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
