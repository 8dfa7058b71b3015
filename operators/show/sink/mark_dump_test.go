// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
)

func TestADumpHasAllThreads(t *testing.T) {
	saving := stack.Stack{
		{Kind: stack.KindPython, Function: "pack", File: "io.py", Line: 3},
		{Kind: stack.KindNative, Function: "PyEval"},
		{Kind: stack.KindPython, Function: "Trainer.save_checkpoint", File: "train.py", Line: 7},
	}
	reading := stack.Stack{{Kind: stack.KindPython, Function: "Queue.get", File: "queue.py", Line: 9}}
	log, lines := test.NewNullLogger()
	log.SetLevel(logrus.InfoLevel)
	begun, end := make(chan []uint32, 1), make(chan error)
	d := &markDumps{log: log, image: "cuda_alloc", dump: func(_ context.Context, image string, pids []uint32) (map[ranks.Thread]ranks.Trace, error) {
		require.Equal(t, "cuda_alloc", image)
		begun <- pids
		return map[ranks.Thread]ranks.Trace{
			{PID: 11, TID: 13}: {Stack: reading, Syscall: "futex"}, {PID: 11, TID: 12}: {Stack: reading, WaitsForGIL: true}, {PID: 11, TID: 11}: {Stack: saving},
		}, <-end
	}}
	path := filepath.Join(t.TempDir(), "m.1.stacks.txt")
	d.write(path, []uint32{11})
	require.Equal(t, []uint32{11}, <-begun)
	d.write(path+".2", []uint32{11}) // meanwhile
	require.Contains(t, lines.LastEntry().Message, "there is none at "+path+".2")
	end <- nil
	d.wait()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, `process 11 thread 11
    pack (io.py:3)
    Trainer.save_checkpoint (train.py:7)

process 11 thread 12, waits for the GIL
    Queue.get (queue.py:9)

process 11 thread 13, waits in futex
    Queue.get (queue.py:9)
`, string(text))
	require.Contains(t, lines.LastEntry().Message, "stacks of 3 threads")

	d.write(path+".3", []uint32{11})
	<-begun
	end <- errors.New("no py_stack")
	d.wait()
	require.Contains(t, lines.LastEntry().Message, "no py_stack")
	require.NoFileExists(t, path+".3")

	var none *markDumps
	none.write(path+".4", []uint32{11})
	none.wait()
	require.NoFileExists(t, path+".4")
}
