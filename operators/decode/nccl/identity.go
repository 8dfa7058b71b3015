// SPDX-License-Identifier: Apache-2.0

package nccl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Identity is the identity of a communicator in its own memory.
type Identity struct {
	// Hash is NCCL's own: the same for all ranks, but different from the one that our
	// programs derive from the unique id, because its formula differs between
	// versions.
	Hash               uint64
	Rank, Size, Device int32
}

// ErrNotReady means that the communicator's memory holds no communicator, or not yet.
var ErrNotReady = errors.New("no communicator there")

// maxRanks is far above the largest job.
const maxRanks = 1 << 22

// Identify reads a communicator of a process that has mapped the library. memory is the
// process's, as /proc/PID/mem is.
func (l *Library) Identify(memory io.ReaderAt, handle uint64) (Identity, error) {
	if l.layout != nil {
		return Identity{}, l.layout
	}
	if handle == 0 || handle >= 1<<47-l.hash-32 {
		return Identity{}, fmt.Errorf("%w: %#x", ErrNotReady, handle)
	}
	if l.Version >= magicSince {
		var b [8]byte
		if _, err := memory.ReadAt(b[:], int64(handle)); err != nil {
			return Identity{}, fmt.Errorf("read communicator %#x: %w", handle, err)
		}
		if binary.LittleEndian.Uint64(b[:]) != magic {
			return Identity{}, fmt.Errorf("%w: %#x", ErrNotReady, handle)
		}
	}
	var b [20]byte
	if _, err := memory.ReadAt(b[:], int64(handle+l.hash)); err != nil {
		return Identity{}, fmt.Errorf("read communicator %#x: %w", handle, err)
	}
	id := Identity{
		Hash: binary.LittleEndian.Uint64(b[:]), Rank: int32(binary.LittleEndian.Uint32(b[8:])),
		Size: int32(binary.LittleEndian.Uint32(b[12:])), Device: int32(binary.LittleEndian.Uint32(b[16:])),
	}
	if id.Hash == 0 || id.Size < 1 || id.Size > maxRanks || id.Rank < 0 || id.Rank >= id.Size {
		return Identity{}, fmt.Errorf("%w: %#x", ErrNotReady, handle)
	}
	return id, nil
}
