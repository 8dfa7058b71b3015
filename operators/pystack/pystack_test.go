// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func wchan(s string) (b [32]byte) {
	copy(b[:], s)
	return b
}

func sixteen(s string) (b [16]byte) {
	copy(b[:], s)
	return b
}

func TestParameters(t *testing.T) {
	for name, c := range map[string]struct {
		values api.ParamValues
		mode   uint32
		err    string
	}{
		"default":      {nil, onCPU, ""},
		"wall":         {api.ParamValues{paramWall: "true", paramFrequency: "10"}, wall, ""},
		"dump":         {api.ParamValues{paramMode: modeDump, paramPID: "1, 2"}, dump, ""},
		"dump by wall": {api.ParamValues{paramMode: modeDump, paramWall: "true"}, 0, "--mode profile"},
		"dump by GIL":  {api.ParamValues{paramMode: modeDump, paramGIL: "true"}, 0, "--mode profile"},
		"frequency 0":  {api.ParamValues{paramFrequency: "0"}, 0, "--frequency"},
		"too frequent": {api.ParamValues{paramFrequency: "10001"}, 0, "--frequency"},
		"pid":          {api.ParamValues{paramPID: "self"}, 0, "--pid"},
		"no bool":      {api.ParamValues{paramGIL: "yes please"}, 0, "--gil"},
	} {
		i := &instance{}
		err := i.parse(c.values)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.mode, i.mode, name)
	}
}

func TestDecodeRefusesHalfARow(t *testing.T) {
	_, err := Decode(make([]byte, recordSize+1))
	require.Error(t, err)
	none, err := Decode(nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// TestText is the shape that people know from py-spy dump: a block per process,
// threads by number, innermost frame first; and nothing that drives a terminal.
func TestText(t *testing.T) {
	var b bytes.Buffer
	for _, r := range []Record{
		{Process: 2, StackID: 7, PID: 1 << 30, TID: 1<<30 + 1, State: runnable, GIL: gilHeld, Syscall: -1, Version: 0x03090000,
			Comm: sixteen("worker"), ProcessComm: sixteen("other\x1b[2J")},
		{Process: 1, StackID: 5, PID: 1<<30 - 1, TID: 1<<30 - 1, State: running, Syscall: -1, Version: 0x030b07f0, Moved: 1,
			Comm: sixteen("main"), ProcessComm: sixteen("serve")},
		{Process: 2, StackID: 6, PID: 1 << 30, TID: 1 << 30, State: 3, GIL: gilNotHeld, Syscall: unix.SYS_READ, Version: 0x03090000,
			Comm: sixteen("main"), ProcessComm: sixteen("other\x1b[2J"), Wchan: wchan("anon_pipe_read.isra.0")},
		{Process: 2, StackID: 5, PID: 1 << 30, TID: 1<<30 + 2, State: 3, GIL: gilWaited, Syscall: unix.SYS_FUTEX, Version: 0x03090000,
			Comm: sixteen("worker"), Wchan: wchan("futex_do_wait")},
		{Process: 2, StackID: 5, PID: 1 << 30, TID: 1<<30 + 3, State: blocked, Syscall: -1, Version: 0x03090000,
			Comm: sixteen("worker"), Wchan: wchan("folio_wait_bit_common")},
	} {
		require.NoError(t, binary.Write(&b, binary.NativeEndian, r))
	}
	records, err := Decode(b.Bytes())
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, write(&out, t.TempDir(), toThreads(records), func(t *thread) []string {
		return []string{"f (a.py:1)", "<module> (a.py:9)"}[:min(t.StackID-4, 2)]
	}))
	require.Equal(t, `Process 1073741823: serve
Python v3.11.7

Thread 1073741823 (active, moved): "main"
    f (a.py:1)

Process 1073741824: other`+"\uFFFD"+`[2J
Python v3.9

Thread 1073741824 (idle: read, anon_pipe_read): "main"
    f (a.py:1)
    <module> (a.py:9)
Thread 1073741825 (runnable+gil): "worker"
    f (a.py:1)
    <module> (a.py:9)
Thread 1073741826 (idle: waits for the GIL): "worker"
    f (a.py:1)
Thread 1073741827 (blocked: folio_wait_bit_common): "worker"
    f (a.py:1)
`, out.String())
}
