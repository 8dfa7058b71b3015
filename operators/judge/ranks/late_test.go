// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// TestAHangWhoseWaitIsOlderThanTheProbesIsReported: the collective was seen as probes were attached, and the wait for
// it had begun before its own was.
func TestAHangWhoseWaitIsOlderThanTheProbesIsReported(t *testing.T) {
	t.Setenv("RANK", "0")
	ranks := newRanks(t)
	pids := make([]uint32, len(ranks))
	for n, r := range ranks {
		pids[n], r.isOld, r.done = uint32(r.process.Process.Pid), true, n == 1
	}
	dump := func(context.Context, string, []uint32) (map[Thread]Trace, error) {
		waits := Trace{Stack: stack.ParseFolded("main (train.py:60); synchronize (torch/cuda/streams.py:105)")}
		return map[Thread]Trace{{pids[0], pids[0]}: waits, {pids[2], pids[2]}: waits,
			{pids[1], pids[1]}: {Stack: stack.ParseFolded("main (train.py:60); step (train.py:41)")}}, nil
	}
	attached, libraries := attachments{}, []string{"libnccl.so.2", "librccl.so.1", "libtorch_cuda.so"}
	run(t, Config{Dump: dump}, map[string]string{paramHang: "2s"}, func(g *gadget, s *seen) {
		require.NoError(t, ranks[1].process.Process.Signal(unix.SIGSTOP))
		for n, r := range ranks {
			r.entered = bootTime()
			require.NoError(t, attached.emit(pids[n], libraries[n]))
		}
		go func() {
			for t.Context().Err() == nil && g.emit(ranks, bootTime()) == nil {
				time.Sleep(200 * time.Millisecond)
			}
		}()
		s.wait(t, "verdict", func() bool { return len(s.hangs) > 0 })
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Equal(t, eventLate, s.hangs[0]["event"])
		require.Equal(t, "stopped", s.hangs[0]["state"])
		require.Regexp(t, `^3 ranks last called NCCL \ds ago, and no wait for that was seen\. Probably missing: rank 0 \(process \d+ sleep\), stopped, at step `, s.hangs[0]["text"])
	}, simple.New("attachments", simple.WithPriority(-1000), simple.OnInit(attached.declare)))
}

// attachments is the data source of the operator attach.
type attachments struct {
	source            datasource.DataSource
	pid, status, path datasource.FieldAccessor
}

func (a *attachments) declare(gc operators.GadgetContext) (err error) {
	if a.source, err = gc.RegisterDataSource(datasource.TypeSingle, "attachments"); err != nil {
		return err
	}
	field := func(name string, kind api.Kind) (f datasource.FieldAccessor) {
		var e error
		f, e = a.source.AddField(name, kind)
		err = errors.Join(err, e)
		return f
	}
	a.pid, a.status, a.path = field("pid", api.Kind_Uint32), field("status", api.Kind_String), field("path", api.Kind_String)
	return err
}

// emit has the library of a process attached to.
func (a *attachments) emit(pid uint32, library string) error {
	packet, err := a.source.NewPacketSingle()
	if err != nil {
		return err
	}
	return errors.Join(a.pid.PutUint32(packet, pid), a.status.PutString(packet, "attached"), a.path.PutString(packet, "/lib/"+library),
		a.source.EmitAndRelease(packet))
}
