// SPDX-License-Identifier: Apache-2.0

package pytorch

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// laid is where memory lies: [device, address, size, blocks], as segments() of holds.py has it.
type laid struct{ Segments [][4]json.RawMessage }

// segment of a snapshot: its blocks are [address, size, requested].
type segment struct {
	device        int32
	address, size uint64
	blocks        [][3]uint64
}

func (l laid) segments(t *testing.T) (all []segment) {
	for _, parts := range l.Segments {
		var s segment
		for i, to := range []any{&s.device, &s.address, &s.size, &s.blocks} {
			require.NoError(t, json.Unmarshal(parts[i], to))
		}
		all = append(all, s)
	}
	return all
}

// TestASnapshotIsWherePyTorchsBlocksLie: what ig-gpu writes of a process that records nothing
// is, address by address, PyTorch's own snapshot, and PyTorch's own program reads it.
func TestASnapshotIsWherePyTorchsBlocksLie(t *testing.T) {
	for _, conf := range []string{"", "expandable_segments:True"} {
		t.Run(conf, func(t *testing.T) {
			t.Parallel()
			p := begin(t, []string{"PYTORCH_CUDA_ALLOC_CONF=" + conf}, "tensors.py", "7")
			path := filepath.Join(t.TempDir(), "s.pickle")
			a := trace[alloc](t, p, "cuda_alloc", "allocs", "--torch", "on", "--waste", "--snapshot-out", path)
			a.attached(p.PID(), "libcuda.so")
			var imported struct{ Imported string }
			var m moment
			p.request("", &imported)
			a.attachedTorch(p.PID(), "cuda_alloc")
			a.attached(p.PID(), "libc10_cuda.so")
			p.request("", &m)
			for range 12 {
				p.request("go", &m)
			}
			var own laid
			p.request("segments", &own)
			a.end(map[string]uint64{})

			out, err := exec.Command(script, "snapshot.py", path).Output()
			require.NoError(t, err)
			var read struct {
				laid
				Lines         []string
				Stats, Memory string
				Events        []int
			}
			require.NoError(t, json.Unmarshal(out, &read), string(out))
			want, have := own.segments(t), read.segments(t)
			blocks, cached, rounded := 0, 0, uint64(0)
			for _, s := range want {
				at := slices.IndexFunc(have, func(h segment) bool { return h.address == s.address })
				require.GreaterOrEqual(t, at, 0, "segment %x of %d bytes", s.address, s.size)
				for n, b := range have[at].blocks {
					if b[2] == b[1] && n < len(s.blocks) { // blocks that are no tensors: not known
						s.blocks[n][2] = b[1]
					}
					rounded += b[1] - b[2]
				}
				require.Equal(t, s, have[at])
				blocks += len(s.blocks)
				if len(s.blocks) == 0 {
					cached++
				}
			}
			require.Greater(t, blocks, 100)
			if conf == "" {
				require.GreaterOrEqual(t, cached, 2, "segments without a block")
			}
			require.Greater(t, rounded, uint64(4096), "bytes that the pool has added to requests")
			require.Len(t, have, len(want), "PyTorch asked for all of it")
			for device, allocated := range m.Allocated {
				var sum uint64
				for _, s := range have {
					for _, b := range s.blocks {
						if s.device == int32(device) {
							sum += b[1]
						}
					}
				}
				require.Equal(t, allocated, sum, "memory_allocated(%d)", device)
			}
			require.Contains(t, read.Stats, fmt.Sprintf("segments: %d\n", len(want)))
			require.Regexp(t, `(?m)^stream_0;active_allocated;.*tensors\.py:\d+:Worker\.empty;.* \d+$`, read.Memory)
			require.Greater(t, len(read.Lines), 10)
			require.Len(t, read.Events, 2)
			for device, n := range read.Events {
				require.Greater(t, n, 50, device)
			}
		})
	}
}
