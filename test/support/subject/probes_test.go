// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinksOfAFileCount(t *testing.T) {
	const link = "pos:\t0\nlink_type:\turetprobe_multi\nlink_id:\t7\npid:\t0\npath:\t/tmp/1/libcuda.so.1\n"
	for _, c := range []struct {
		name, info string
		want       bool
	}{
		{"its file", link, true},
		{"another file", "link_type:\tuprobe_multi\npath:\t/usr/lib/libnccl.so.2\n", false},
		{"a kernel without paths", "link_type:\tuprobe_multi\nlink_id:\t7\n", true},
		{"a perf event", "link_type:\tperf\n", true},
		{"a link to a function of the kernel", "link_type:\ttracing\n", false},
		{"a file", "pos:\t0\nflags:\t02000000\n", false},
	} {
		require.Equal(t, c.want, isProbe([]byte(c.info), "libcuda.so.1"), c.name)
	}
	require.Zero(t, Probes(os.Getpid(), "libcuda.so.1"), "this process probes nothing")
}
