// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"
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

func TestIDsOfAContainerAreRefused(t *testing.T) {
	procfs := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(procfs, "1/ns/pid"), 0o755)) // not the first namespace
	i := &instance{op: New(Config{ProcFS: procfs}), pids: []uint32{7}}
	require.ErrorIs(t, i.PreStart(nil), selection.ErrNested)
	i.pids = nil
	require.NoError(t, i.PreStart(nil))
}

func TestDecodeRefusesHalfARow(t *testing.T) {
	_, err := Decode(make([]byte, recordSize+1))
	require.Error(t, err)
	none, err := Decode(nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// TestUnsupportedInterpretersAreNamed: who asks for what is supported still finds that there is none.
func TestUnsupportedInterpretersAreNamed(t *testing.T) {
	err := unsupportedError(minors([]uint32{0x310, 0x30e, 0x310}))
	require.ErrorIs(t, err, ErrNoPython)
	require.EqualError(t, err, "CPython 3.14, 3.16 in the selected processes are not supported (3.7 to 3.15 are, of free-threaded builds 3.13 only)")
	require.ErrorContains(t, unsupportedError(minors([]uint32{0x30e})), "CPython 3.14 in the selected processes is not supported")
}

// TestText checks the format known from py-spy dump: a block per process, threads by
// number, innermost frame first; and nothing that controls a terminal.
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
	require.NoError(t, write(&out, t.TempDir(), toThreads(records), map[uint64]string{2: "ml/trainer-0/worker"}, func(t *thread) []string {
		return []string{"f (a.py:1)", "<module> (a.py:9)"}[:min(t.StackID-4, 2)]
	}))
	require.Equal(t, `Process 1073741823: serve
Python v3.11.7

Thread 1073741823 (active, moved): "main"
    f (a.py:1)

Process 1073741824: other`+"\uFFFD"+`[2J
Container ml/trainer-0/worker
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

// sources is a gadget context without a gadget.
type sources struct{}

func (sources) RegisterDataSource(kind datasource.Type, name string) (datasource.DataSource, error) {
	return datasource.New(kind, name)
}

// TestContainersOfADump: the name of a process's container is that which the
// container managers give its rows, by its mount namespace.
func TestContainersOfADump(t *testing.T) {
	r, err := newRows(sources{}, true)
	require.NoError(t, err)
	k8s, err := r.ds.AddField("k8s", api.Kind_Invalid, datasource.WithFlags(datasource.FieldFlagEmpty))
	require.NoError(t, err)
	fields := map[string]datasource.FieldAccessor{}
	for _, name := range []string{"namespace", "podName", "containerName"} {
		fields[name], err = k8s.AddSubField(name, api.Kind_String)
		require.NoError(t, err)
	}
	runtime, err := r.ds.AddField("runtime", api.Kind_Invalid, datasource.WithFlags(datasource.FieldFlagEmpty))
	require.NoError(t, err)
	container, err := runtime.AddSubField("containerName", api.Kind_String)
	require.NoError(t, err)
	tagged := r.ds.GetFieldsWithTag(ig.TagMountNS)
	require.Len(t, tagged, 1)
	require.NoError(t, r.ds.Subscribe(func(_ datasource.DataSource, row datasource.Data) error {
		switch ns, _ := tagged[0].Uint64(row); ns {
		case 11:
			_ = fields["namespace"].PutString(row, "ml")
			_ = fields["podName"].PutString(row, "trainer-0")
			_ = fields["containerName"].PutString(row, "worker")
			_ = container.PutString(row, "worker")
		case 12:
			_ = container.PutString(row, "happy_shannon")
		}
		return nil
	}, 0))
	names, err := r.containers(toThreads([]Record{
		{Process: 1, MountNS: 11, PID: 5}, {Process: 2, MountNS: 12, PID: 6}, {Process: 3, MountNS: 13, PID: 7},
	}))
	require.NoError(t, err)
	require.Equal(t, map[uint64]string{1: "ml/trainer-0/worker", 2: "happy_shannon"}, names)
}
