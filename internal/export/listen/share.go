// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"net"
	"net/netip"
	"sync"
)

// shares is a listener that closes connections of an address with as many as one may have.
type shares struct {
	net.Listener

	mu   sync.Mutex
	open map[netip.Prefix]int // connections by who shares them; none is 0
}

func newShares(l net.Listener) *shares {
	return &shares{Listener: l, open: map[netip.Prefix]int{}}
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
	}
}

// take reports whether a client may have another connection, and counts it.
func (s *shares) take(of netip.Prefix) bool {
	most := maxOfAddress
	if of.Addr().IsLoopback() {
		most = maxOfMachine
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[of] >= most {
		return false
	}
	s.open[of]++
	return true
}

func (s *shares) release(of netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
