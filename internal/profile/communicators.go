// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PhaseProgram is the phase of ncclMemAlloc, whose memory belongs to no communicator.
const PhaseProgram = "ncclMemAlloc"

// CommunicatorName is how users read whose memory NCCL allocated: the identity, which all ranks
// have in common, as in verdicts; the address in the process, if it was created before attach; unknown; or
// none.
func CommunicatorName(number, identity, handle uint64, phase string) string {
	switch {
	case phase == PhaseProgram:
		return "none"
	case number == 0:
		return "unknown"
	case identity != 0:
		return "0x" + strconv.FormatUint(identity, 16)
	case handle != 0:
		return "at 0x" + strconv.FormatUint(handle, 16)
	}
	return "#" + strconv.FormatUint(number, 10)
}

// CommunicatorMemory has the bytes that NCCL holds, on GPUs or pinned, for a communicator of a process.
type CommunicatorMemory struct {
	PID                       uint32
	Communicator, Name, State string
	Rank, Size                int32  // -1: unknown
	Line                      string // that made it; empty: unknown
	Kind, Phase               string
	Bytes                     int64
}

// String is it in a sentence.
func (c CommunicatorMemory) String() string {
	text := FormatBytes(c.Bytes) + " for "
	switch {
	case c.Communicator == "none":
		return FormatBytes(c.Bytes) + " for the program itself (ncclMemAlloc)"
	case c.Communicator == "unknown":
		return text + "unknown communicators"
	case c.Name != "":
		text += c.Name + " (" + c.Communicator + ")"
	default:
		text += c.Communicator
	}
	if c.Rank >= 0 && c.Size > 0 {
		text += fmt.Sprintf(", rank %d of %d", c.Rank, c.Size)
	}
	if c.State != "" && c.State != "active" {
		text += ", " + c.State
	}
	if c.Line != "" && c.Line != "[unknown]" {
		text += ", made by " + c.Line
	}
	return text
}

// SumCommunicators adds up phases, kinds and devices: one entry for each communicator of a process
// that holds memory, the largest first.
func SumCommunicators(all []CommunicatorMemory) []CommunicatorMemory {
	type of struct {
		pid  uint32
		name string
	}
	at := map[of]int{}
	var sums []CommunicatorMemory
	for _, c := range all {
		if c.Bytes == 0 {
			continue
		}
		c.Kind, c.Phase = "", ""
		key := of{c.PID, c.Communicator + " " + strconv.Itoa(int(c.Rank))}
		if n, ok := at[key]; ok {
			sums[n].Bytes += c.Bytes
			continue
		}
		at[key] = len(sums)
		sums = append(sums, c)
	}
	slices.SortStableFunc(sums, func(a, b CommunicatorMemory) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PID, b.PID), strings.Compare(a.Communicator, b.Communicator))
	})
	return sums
}
