// SPDX-License-Identifier: Apache-2.0

package taps

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// TestMain mounts tracefs, as the kit does: many containers are without it.
func TestMain(m *testing.M) {
	const tracefs = "/sys/kernel/tracing"
	if err := syscall.Mount("tracefs", tracefs, "tracefs", 0, ""); os.Geteuid() == 0 && err != nil && err != syscall.EBUSY {
		fmt.Fprintf(os.Stderr, "mount %s for the tests: %v\n", tracefs, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestACountThatCannotBeStartedIsAnError(t *testing.T) {
	bpftest.RequireRoot(t)
	_, err := CountCalls("/nonexistent", os.Getpid(), nil)
	require.ErrorContains(t, err, "open /nonexistent")
}

// The test makes the ioctls itself, on a file that refuses them: requests are recorded,
// not results.
func TestIoctlsOfTheResourceManagerAreDecoded(t *testing.T) {
	bpftest.RequireRoot(t)
	tap, err := RecordIoctls(os.Getpid())
	require.NoError(t, err)
	defer tap.Close()
	null, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer null.Close()
	call := func(nr, size uintptr, params []byte) {
		cmd := 3<<30 | size<<16 | magic<<8 | nr
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, null.Fd(), cmd, uintptr(unsafe.Pointer(&params[0])))
		require.Equal(t, unix.ENOTTY, errno)
	}
	memory := make([]byte, 128) // NV_MEMORY_ALLOCATION_PARAMS
	binary.NativeEndian.PutUint64(memory[allocSizeAt:], 64<<20)
	for _, size := range []uintptr{32, 48} { // NVOS21, NVOS64
		params := make([]byte, size)
		binary.NativeEndian.PutUint32(params[classAt:], 0x40)
		binary.NativeEndian.PutUint64(params[allocPointerAt:], uint64(uintptr(unsafe.Pointer(&memory[0]))))
		call(rmAlloc, size, params)
	}
	call(rmFree, 16, make([]byte, 16))
	call(0x11, 16, make([]byte, 16))
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, null.Fd(), 33, 0) // UVM's have no magic

	all, err := tap.Read()
	require.NoError(t, err)
	var got []Ioctl
	for _, i := range all {
		if i.Path == "/dev/null" { // not those of Go's own files
			got = append(got, i)
		}
	}
	alloc := Ioctl{Path: "/dev/null", Name: "NV_ESC_RM_ALLOC", Class: "NV01_MEMORY_LOCAL_USER", Bytes: 64 << 20}
	require.Equal(t, []Ioctl{alloc, alloc, {Path: "/dev/null", Name: "NV_ESC_RM_FREE"},
		{Path: "/dev/null", Name: "F 0x11"}, {Path: "/dev/null", Name: "0x21"}}, got)
}
