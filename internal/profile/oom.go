// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// OOM is one allocation that failed, with who held the memory then. Of those that failed for another reason than memory
// (IsOutOfMemory) who holds it is not why.
type OOM struct {
	Time    time.Time
	Process Process
	Stack   stack.Stack
	Span    Span
	// API is the driver's function, Error what it returned, by name or number.
	API, Error string
	// RefusedBy is "driver", "torch" for PyTorch's pool, or the library in front of the
	// driver that limits the process; "": not known.
	RefusedBy string
	// Device is the CUDA ordinal of the GPU that it was for; UnknownDevice: not known, or of the host's memory.
	Device         int32
	RequestedBytes int64
	// InuseBytes is the memory that the process itself held on the device; on all where that is unknown.
	InuseBytes int64
	// PoolBytes are those that PyTorch's pool had allocated on the device by its own account, where that refused; 0: not known.
	PoolBytes int64
	// Holders are the stacks that held most, largest first.
	Holders []Holder
}

// ErrorBy is an error, human-readable, with who gave it where that is a library in front of the
// driver (OOM.RefusedBy).
func ErrorBy(text, refusedBy string) string {
	switch refusedBy {
	case "", "driver", "torch":
		return text
	}
	return text + " by " + refusedBy + ", not by the driver"
}

// IsOutOfMemory reports whether an error, by its name or its number, is that there is no memory left. It is the same one
// from the driver, from PyTorch's pool and from a library in front of the driver. Allocations fail for other reasons, too:
// programs find out what a GPU supports by them, and after an error of a kernel all calls fail. HAMi before 2.9 gives -1
// where its limit is reached; drivers have no negative errors.
func IsOutOfMemory(err string) bool {
	switch err {
	case "CUDA_ERROR_OUT_OF_MEMORY", "hipErrorOutOfMemory", "hipErrorRuntimeMemory", "2":
		return true
	}
	number, e := strconv.ParseInt(err, 10, 64)
	return e == nil && int32(number) < 0
}

// RefusedOn is the device that a refusal was about, by the kind of memory: a thread pins memory of the host on a device,
// and it takes no room there.
func RefusedOn(kind string, device int32) int32 {
	if kind == KindHost {
		return UnknownDevice
	}
	return device
}

// OnGPU is " on GPU 3", and empty for a device that is unknown.
func OnGPU(device int32) string {
	if device < 0 {
		return ""
	}
	return " on GPU " + strconv.Itoa(int(device))
}

// Request is a call that was refused, human-readable: `cuMemAlloc_v2 of 26.0 MiB on GPU 3`. The driver chooses the size of
// some, as of contexts: those have none.
func Request(api string, bytes int64, device int32) string {
	if bytes == 0 {
		return api + OnGPU(device)
	}
	return api + " of " + FormatBytes(bytes) + OnGPU(device)
}

// PoolAPI is the API of a refusal by PyTorch's pool.
const PoolAPI = "torch"

// Held says how much a process held of the memory that was refused, at that moment.
type Held struct {
	API    string // that was refused
	Device int32  // where it held it; UnknownDevice: on all, or memory of the host
	// RowsBytes is what was allocated since the probes were attached: of sampled tensors an estimate.
	RowsBytes int64
	// PoolBytes is PyTorch's own account, where its pool refused: exact, and with what it had before. 0: none, as of old versions.
	PoolBytes int64
	Holders   string // the largest lines, as HeldByLine has them; "": not known, or shown elsewhere
}

// String says how much it was, by line, and how much of it has none, human-readable.
func (h Held) String() string {
	bytes, rest, unknown := h.RowsBytes, " of what was allocated after ig-gpu attached", int64(0)
	if h.API == PoolAPI && h.PoolBytes > 0 {
		bytes, rest, unknown = h.PoolBytes, "", h.PoolBytes-h.RowsBytes
	}
	text := "it held " + FormatBytes(bytes)
	if h.Device >= 0 {
		text += " on that GPU"
	}
	text += rest
	if h.Holders != "" {
		text += ": " + h.Holders
	}
	if unknown > h.PoolBytes/10 { // less may be the error of an estimate, from sampled tensors
		text += "; the lines of " + FormatBytes(unknown) + " of it are unknown"
	}
	return text
}

// Holder is a stack and what it held.
type Holder struct {
	Stack stack.Stack
	Bytes int64
}

// LineHeld is a line, by its label, and what it held.
type LineHeld struct {
	Label string
	Bytes int64
}

// HeldByLine adds up what belongs to one line, over its stacks, and is the text that
// people read: `12.0 MiB f (x.py:3); …`, largest first.
func HeldByLine(all []LineHeld) string {
	var lines []LineHeld
	for _, h := range all {
		at := slices.IndexFunc(lines, func(l LineHeld) bool { return l.Label == h.Label })
		if at < 0 {
			lines = append(lines, h)
		} else {
			lines[at].Bytes += h.Bytes
		}
	}
	slices.SortStableFunc(lines, func(a, b LineHeld) int { return cmp.Compare(b.Bytes, a.Bytes) })
	text := make([]string, len(lines))
	for i, l := range lines {
		text[i] = FormatBytes(l.Bytes) + " " + l.Label
	}
	return strings.Join(text, "; ")
}
