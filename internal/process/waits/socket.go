// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// network has the sockets of a network namespace.
type network struct {
	unixPeers map[string]string // by "socket:[INODE]"
	remote    map[string]string // address of the other end of a TCP connection
	tcp       map[string]string // "LOCAL REMOTE" → socket
	local     map[string]string
	sockets   int // that were read
}

// peers are the sockets at the other end of one, and the address of it.
func (r *Reader) peers(pid uint32, id string) (ids []string, address string) {
	n := r.network(pid)
	if peer, ok := n.unixPeers[id]; ok {
		return []string{peer}, ""
	}
	address, ok := n.remote[id]
	if !ok {
		return nil, ""
	}
	if peer, ok := n.tcp[address+" "+n.local[id]]; ok {
		return []string{peer}, address
	}
	return nil, address
}

// network reads the sockets of a process's network namespace on first use.
func (r *Reader) network(pid uint32) *network {
	t := r.load()
	ns, err := os.Readlink(r.file(pid, "ns", "net"))
	if n, ok := t.networks[ns]; ok && err == nil {
		return n
	}
	n := &network{unixPeers: map[string]string{}, remote: map[string]string{}, tcp: map[string]string{}, local: map[string]string{}}
	t.networks[ns] = n
	defer func() { r.take(pid, netCost+time.Duration(n.sockets)*socketCost) }()
	if f, err := os.Open(r.file(pid, "ns", "net")); err == nil {
		n.readUnix(int(f.Fd()))
		f.Close()
	}
	for _, name := range []string{"tcp", "tcp6"} {
		if f, err := os.Open(r.file(pid, "net", name)); err == nil {
			n.readTCP(f)
			f.Close()
		}
	}
	return n
}

// readUnix asks the kernel for the peers of Unix sockets, which /proc/net/unix does not have:
// sock_diag(7), struct unix_diag_req and unix_diag_msg.
func (n *network) readUnix(namespace int) {
	const (
		sockDiagByFamily = 20
		showPeer         = 4
		attributePeer    = 2
		sizeOfMessage    = 16
	)
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{NetNS: namespace})
	if err != nil {
		return
	}
	defer c.Close()
	request := make([]byte, 24)
	request[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(request[4:], ^uint32(0)) // all states
	binary.NativeEndian.PutUint32(request[12:], showPeer)
	replies, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump}, Data: request,
	})
	if err != nil {
		return
	}
	n.sockets += len(replies)
	for _, m := range replies[:min(len(replies), maxSocketsOfNet)] {
		if len(m.Data) < sizeOfMessage {
			continue
		}
		inode := binary.NativeEndian.Uint32(m.Data[4:])
		attributes, err := netlink.NewAttributeDecoder(m.Data[sizeOfMessage:])
		if err != nil {
			continue
		}
		for attributes.Next() {
			if attributes.Type() == attributePeer && len(attributes.Bytes()) == 4 {
				n.unixPeers[socketID(uint64(inode))] = socketID(uint64(attributes.Uint32()))
			}
		}
	}
}

func socketID(inode uint64) string { return fmt.Sprintf("socket:[%d]", inode) }

// readTCP reads /proc/net/tcp: "  0: 0100007F:1F90 0100007F:D2F0 01 … inode".
func (n *network) readTCP(f io.Reader) {
	lines := bufio.NewScanner(f)
	for count := 0; lines.Scan() && count < maxSocketsOfNet; count++ {
		n.sockets++
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		local, err := parseAddress(fields[1])
		if err != nil {
			continue
		}
		remote, err := parseAddress(fields[2])
		if err != nil || remote.Port() == 0 {
			continue // it listens
		}
		inode, err := strconv.ParseUint(fields[9], 10, 64)
		if err != nil || inode == 0 {
			continue
		}
		id := socketID(inode)
		n.local[id], n.remote[id] = local.String(), remote.String()
		n.tcp[local.String()+" "+remote.String()] = id
	}
}

// parseAddress reads an address of /proc/net/tcp: words of the machine's byte order in
// hexadecimal, and a port.
func parseAddress(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("parse the address %q: %w", text, err)
	}
	for word := b; len(word) >= 4; word = word[4:] {
		binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
	}
	address, ok := netip.AddrFromSlice(b)
	number, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return netip.AddrPort{}, fmt.Errorf("parse the address %q: not one of /proc/net/tcp", text)
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(number)), nil
}
