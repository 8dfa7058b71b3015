// SPDX-License-Identifier: Apache-2.0

package ras

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
)

// ErrOff means that RAS is switched off in the process.
var ErrOff = errors.New("NCCL_RAS_ENABLE is 0")

// ErrElsewhere means that the process claims an address that we do not connect to. Otherwise a
// process could have us connect to anywhere.
var ErrElsewhere = errors.New("NCCL_RAS_ADDR is not a loopback address with a port from 1024 on")

const (
	dialTimeout = time.Second
)

// AddressOf returns the address of a process's RAS, according to the environment of its
// start.
func AddressOf(procfs string, pid uint32) (netip.AddrPort, error) {
	b, err := memory.ReadInherited(procfs, pid, memory.MaxBytes)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return address(b)
}

func address(environment []byte) (netip.AddrPort, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	at := netip.AddrPortFrom(loopback, DefaultPort)
	for v := range bytes.SplitSeq(environment, []byte{0}) {
		if bytes.Equal(v, []byte("NCCL_RAS_ENABLE=0")) {
			return at, ErrOff
		}
		value, ok := bytes.CutPrefix(v, []byte("NCCL_RAS_ADDR="))
		if !ok {
			continue
		}
		host, port, err := net.SplitHostPort(string(value))
		if err != nil {
			return at, fmt.Errorf("%w: %q", ErrElsewhere, value)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		ip := loopback
		if err == nil && host != "localhost" {
			ip, err = netip.ParseAddr(host)
		}
		if err == nil && ip.IsUnspecified() {
			ip = loopback // it listens there, too
		}
		if err != nil || !ip.IsLoopback() || n < 1024 {
			return at, fmt.Errorf("%w: %q", ErrElsewhere, value)
		}
		at = netip.AddrPortFrom(ip, uint16(n))
	}
	return at, nil
}

// Dial connects to an address as the process sees it: in its network namespace.
func Dial(ctx context.Context, procfs string, pid uint32, at netip.AddrPort) (net.Conn, error) {
	ns, err := os.Open(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "ns/net"))
	if err != nil {
		return nil, fmt.Errorf("open the network namespace of process %d: %w", pid, err)
	}
	defer ns.Close()
	dialer := net.Dialer{Timeout: dialTimeout}
	if isOurs(ns) {
		return dialer.DialContext(ctx, "tcp", at.String())
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		// The thread stays in the other namespace, so no other goroutine may use it: it
		// ends with this goroutine, which does not unlock it.
		runtime.LockOSThread()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{err: fmt.Errorf("enter the network namespace of process %d: %w", pid, err)}
			return
		}
		// A literal address is dialled by the goroutine itself.
		c, err := dialer.DialContext(ctx, "tcp", at.String())
		done <- result{c, err}
	}()
	r := <-done
	return r.conn, r.err
}

func isOurs(ns *os.File) bool {
	var theirs, ours unix.Stat_t
	return unix.Fstat(int(ns.Fd()), &theirs) == nil && unix.Stat("/proc/self/ns/net", &ours) == nil &&
		theirs.Dev == ours.Dev && theirs.Ino == ours.Ino
}
