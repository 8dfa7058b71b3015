// SPDX-License-Identifier: Apache-2.0

package ooms

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Failure is one allocation that failed: by the driver, or by By. Where Error is not that there was no
// memory, it has nothing to do with who holds it.
type Failure struct {
	Comm, API, Error, Frame, Holders string
	// By is the data source's refused_by.
	By  string
	PID uint32
	// At is its time in nanoseconds, on the clock of the data source.
	At uint64
	// Device is the CUDA ordinal of the GPU that it was for; profile.UnknownDevice: not known, or of the host's memory.
	Device int32
	// IsHost: it was for pinned memory of the host, which takes no room on a GPU.
	IsHost                     bool
	RequestedBytes, InuseBytes uint64
	// Pool is PyTorch's own account of its pool, where that refused.
	Pool Pool
}

// LacksMemory reports whether there was no memory for it.
func (f *Failure) LacksMemory() bool { return profile.IsOutOfMemory(f.Error) }

// IsOfGPU reports whether the driver had no more on the GPU, for the process or for PyTorch's pool, as far as is known:
// neither a limit of the process's own, nor memory of the host.
func (f *Failure) IsOfGPU() bool {
	by := f.By
	if f.API == profile.PoolAPI {
		if by = f.Pool.By; f.Pool.Refused == "" {
			return false
		}
	}
	return !f.IsHost && profile.ErrorBy("", by) == ""
}

// Request says what was refused, and with which error, human-readable.
func (f *Failure) Request() string {
	return profile.Request(f.API, capped(f.RequestedBytes), f.Device) + f.reason()
}

// Refusal says who was refused what, and with which error, human-readable.
func (f *Failure) Refusal() string {
	if f.API == profile.PoolAPI {
		return fmt.Sprintf("PyTorch's pool refused %s[%d] %s%s%s", f.Comm, f.PID, size(f.RequestedBytes), profile.OnGPU(f.Device), f.reason())
	}
	return fmt.Sprintf("%s[%d] was refused %s", f.Comm, f.PID, f.Request())
}

// reason is the line and the error.
func (f *Failure) reason() string {
	return fmt.Sprintf(" at %s: %s", cmp.Or(f.Frame, "code without a name"), profile.ErrorBy(f.Error, f.By))
}

// Held says what the process held at that moment, by line, and why that left no room, where that is known, human-readable.
func (f *Failure) Held() string {
	text := profile.Held{
		API: f.API, Device: f.Device, RowsBytes: capped(f.InuseBytes), PoolBytes: capped(f.Pool.AllocatedBytes), Holders: f.Holders,
	}.String()
	if why := f.Pool.why(f.RequestedBytes); why != "" {
		text += "; " + why
	}
	return text
}

// capped is a number of bytes, signed. A process may request up to 2⁶⁴ − 1.
func capped(bytes uint64) int64 { return int64(min(bytes, math.MaxInt64)) }

// size is human-readable.
func size(bytes uint64) string { return profile.FormatBytes(capped(bytes)) }
