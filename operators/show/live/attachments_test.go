// SPDX-License-Identifier: Apache-2.0

package live

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/top"
)

// TestWhatCouldNotBeAttachedToIsNotCounted, neither on the screen nor in what stays of it and programs are given.
func TestWhatCouldNotBeAttachedToIsNotCounted(t *testing.T) {
	for _, status := range []string{"failed", "unreadable", "not an ELF file", "no symbols"} {
		c := newTerminal()
		s := NewScreen(ScreenConfig{Console: c, Title: "cuda_alloc", Views: []top.View{top.Memory}})
		s.begin(run{cancel: func() {}})
		s.attached(attachment{pid: 7, status: status, path: "/libcuda.so.1", comm: "python3"})
		c.wait(t, "attached to nothing yet")
		c.wait(t, "Nothing could be attached to: /libcuda.so.1 of python3[7]: "+status+". ")
		require.NotContains(t, c.text(), "the first numbers come")
		_, final := s.Result()
		require.Contains(t, final, "attached to nothing: /libcuda.so.1 of python3[7]: "+status)
		require.NotContains(t, final, "1 process")

		s.attached(attachment{pid: 8, functions: 53, status: "attached", path: "/libcuda.so.1"})
		s.attached(attachment{pid: 9, status: status, path: "/libcuda.so.1", comm: "python3"})
		c.wait(t, "attached to 1 process, 53 functions")
		c.wait(t, "the first numbers come")
		s.Close()
		require.Contains(t, c.raw.String(), "attached to 1 process, 53 functions  ran")
	}
}

// TestTheReasonWhyNothingIsAttachedIsNotCut at the terminal's width.
func TestTheReasonWhyNothingIsAttachedIsNotCut(t *testing.T) {
	c := newTerminal()
	s := NewScreen(ScreenConfig{Console: c, Title: "ig-gpu hangs"})
	s.begin(run{cancel: func() {}})
	s.attached(attachment{pid: 7, status: "failed", failure: "operation not permitted", path: "/usr/lib/x86_64-linux-gnu/libnccl.so.2", comm: "python3"})
	c.wait(t, "  python3[7]: failed, operation not permitted.")
	s.Abandon()
}

// TestAProcessStaysUntilItsLastLibraryIsGone, also where another file comes to the path of one.
func TestAProcessStaysUntilItsLastLibraryIsGone(t *testing.T) {
	var s attachments
	s.take(attachment{pid: 7, functions: 50, status: "attached", path: "/libcuda.so.1", build: "a"})
	s.take(attachment{pid: 7, functions: 20, status: "attached", path: "/libnccl.so.2"})
	require.Equal(t, "1 process, 70 functions", s.text())
	s.take(attachment{pid: 7, functions: 20, status: "gone", path: "/libnccl.so.2"})
	require.Equal(t, "1 process, 50 functions", s.text())
	s.take(attachment{pid: 7, functions: 60, status: "attached", path: "/libcuda.so.1", build: "b"})
	s.take(attachment{pid: 7, functions: 50, status: "gone", path: "/libcuda.so.1", build: "a"})
	require.Equal(t, "1 process, 60 functions", s.text())
	s.take(attachment{pid: 7, functions: 60, status: "gone", path: "/libcuda.so.1", build: "b"})
	require.Empty(t, s.text())
	require.Empty(t, s.processes)
}

// TestProcessesThatCannotBeAttachedToAreNotRemembered, for their end is not reported.
func TestProcessesThatCannotBeAttachedToAreNotRemembered(t *testing.T) {
	var s attachments
	for pid := range int64(1000) {
		s.take(attachment{pid: pid, status: "failed", path: "/libcuda.so.1"})
	}
	require.Empty(t, s.processes)
}
