// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
)

// TestTheOldestOperationIsReadWhileItIsNotDone, and not once its number is that of another call.
func TestTheOldestOperationIsReadWhileItIsNotDone(t *testing.T) {
	for _, c := range []struct {
		name string
		op   nccl.Operation
		want bool
	}{
		{"not done", nccl.Operation{Seq: 9, Match: 7, EnterNS: 1, Op: uint8(collective.AllReduce)}, true},
		{"done", nccl.Operation{Seq: 9, Match: 7, EnterNS: 1, DoneNS: 2, Op: uint8(collective.AllReduce)}, false},
		{"done, as a later one is", nccl.Operation{Seq: 6, Match: 5, EnterNS: 1, Op: uint8(collective.AllReduce)}, false},
		{"its number was given back", nccl.Operation{Seq: 40, Match: 31, EnterNS: 1, Op: uint8(collective.AllReduce)}, false},
		{"a send", nccl.Operation{Seq: 9, Match: 7, EnterNS: 1, Op: uint8(collective.Send)}, false},
		{"none", nccl.Operation{}, false},
		{"another one is written", nccl.Operation{Match: 7, EnterNS: 1, Op: uint8(collective.AllReduce)}, false},
	} {
		b, err := binary.Append(nil, binary.NativeEndian, c.op)
		require.NoError(t, err)
		all := appendOperations(nil, b, 0, 0, 0)
		require.Equal(t, c.want, len(all) > 0 && isOldest(&all[0], &collective.Observation{Issued: 30, Done: 5}), c.name)
	}
}

func TestDigestsOfBytes(t *testing.T) {
	b := make([]byte, 8*nccl.Digests)
	b[0], b[len(b)-1] = 1, 2
	digests := digestsOf(b)
	require.Len(t, digests, nccl.Digests)
	require.Equal(t, binary.NativeEndian.Uint64(b), digests[0])
	require.Equal(t, binary.NativeEndian.Uint64(b[len(b)-8:]), digests[nccl.Digests-1])
	require.Nil(t, digestsOf(b[1:]))
	require.Nil(t, digestsOf(nil))
}
