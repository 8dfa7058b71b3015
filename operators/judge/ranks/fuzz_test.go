// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
)

// FuzzOperations judges three ranks whose rings hold any bytes: a process chooses the arguments of its calls, and when it makes them.
func FuzzOperations(f *testing.F) {
	var ring [nccl.Ring]nccl.Operation
	for n := range ring {
		ring[n] = nccl.Operation{Seq: uint64(n + 1), Match: uint64(n + 1), EnterNS: uint64(n + 1), Count: 8, Op: uint8(n%10 + 1), Peer: int32(n % 3)}
	}
	one, err := binary.Append(nil, binary.NativeEndian, ring)
	require.NoError(f, err)
	f.Add(one, uint64(16), uint64(3), uint8(0))
	f.Add(bytes.Repeat(one, 3), uint64(16), uint64(16), uint8(4))
	f.Add(bytes.Repeat([]byte{0xff}, 3*operationSize), ^uint64(0), uint64(0), uint8(9))
	f.Fuzz(func(t *testing.T, b []byte, issued, done uint64, state uint8) {
		b = b[:min(len(b), 3*nccl.Ring*operationSize)]
		a, err := collective.New(collective.Config{})
		require.NoError(t, err)
		const second = collective.Time(time.Second)
		for at := range collective.Time(3) {
			now := (1 + 20*at) * second
			for rank := range 3 {
				part := b[min(len(b), rank*nccl.Ring*operationSize):]
				part = part[:min(len(part), nccl.Ring*operationSize)]
				o := collective.Observation{At: now, Process: collective.Process{ID: uint64(rank + 1)}, Rank: rank, Issued: issued + uint64(rank&int(state>>4)), Done: done,
					Communicator: collective.Communicator{Hash: 1, Size: 3}, Operations: appendOperations(nil, part, 0, uint64(now), uint64(now)),
					Digests: digestsOf(part), State: collective.State((int(state) + rank) % 10)}
				require.LessOrEqual(t, len(o.Operations), nccl.Ring)
				_ = a.Observe(o) // it may be implausible
			}
			for _, v := range a.Evaluate(now) {
				require.NotEmpty(t, v.String(now))
				require.LessOrEqual(t, len(v.Missing), 3)
			}
			for _, s := range a.Ranks(now) {
				require.NotEmpty(t, s.Metrics(0))
			}
		}
	})
}
