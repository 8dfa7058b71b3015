// SPDX-License-Identifier: Apache-2.0

// Package difference prints, human-readable, what changed between two moments: of two files
// (ig-gpu diff), and since the last mark, on a terminal.
package difference

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// Options of a table.
type Options struct {
	// Limit is how many lines are shown, those that changed most; 0: all.
	Limit int
	// Hint says, behind how many lines are left out, what shows them.
	Hint string
	// Width is the most columns that a line may take; 0: as it is.
	Width int
}

// Write prints the lines of Python whose memory changed: in-use bytes that grew or shrank,
// and what was taken and given back again; last the sums, of each layer its own.
func Write(w io.Writer, changes profile.Changes, o Options) error {
	var text bytes.Buffer
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "GREW\tFREED\tBEFORE\tAFTER\tOBJECTS\tDEVICE\tKIND\t FRAME")
	// Tensors lie in memory that is in the driver's rows: there is no sum of both.
	sums := map[profile.Layer]profile.Change{}
	shown, left := 0, 0
	for _, c := range changes.ByLine() {
		// The driver's rows begin with attach, and so do the tensors that lie in them.
		if c.Stack.Self().Function != stack.BeforeAttach {
			layer := profile.LayerOf(c.Kind)
			sum := sums[layer]
			sum.Before, sum.After = sum.Before.Add(c.Before), sum.After.Add(c.After)
			sums[layer] = sum
		}
		if c.Delta(profile.InuseSpace) == 0 && c.Delta(profile.InuseObjects) == 0 && c.Freed() <= 0 {
			continue
		}
		if o.Limit > 0 && shown == o.Limit {
			left++
			continue
		}
		shown++
		device := "unknown"
		if c.Device != profile.UnknownDevice {
			device = strconv.Itoa(int(c.Device))
		}
		writeChange(out, c, device, c.Kind, c.Stack.Where())
	}
	tensors, has := sums[profile.Torch]
	if !has {
		writeChange(out, sums[profile.Driver], "", "", "(all)")
	} else {
		writeChange(out, sums[profile.Driver], "", "", "(all that the driver gave, reserved by the pool)")
		writeChange(out, tensors, "", "", "(all that tensors hold of it)")
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print difference: %w", err)
	}
	if left > 0 {
		fmt.Fprintf(&text, "%d more lines changed%s\n", left, o.Hint)
	}
	if _, err := w.Write(cut(text.Bytes(), o.Width)); err != nil {
		return fmt.Errorf("print difference: %w", err)
	}
	return nil
}

func writeChange(w io.Writer, c profile.Change, device, kind, frame string) {
	freed := "" // counters that went down: another run
	if c.Freed() >= 0 {
		freed = profile.FormatBytes(c.Freed())
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%+d\t%s\t%s\t %s\n",
		Signed(c.Delta(profile.InuseSpace)), freed, profile.FormatBytes(c.Before.InuseBytes),
		profile.FormatBytes(c.After.InuseBytes), c.Delta(profile.InuseObjects), device, kind, frame)
}

// Signed is a number of bytes with its sign, also where it grew.
func Signed(bytes int64) string {
	if bytes > 0 {
		return "+" + profile.FormatBytes(bytes)
	}
	return profile.FormatBytes(bytes)
}

// cut shortens each line to so many characters.
func cut(text []byte, width int) []byte {
	if width <= 0 {
		return text
	}
	var out []byte
	for line := range bytes.Lines(text) {
		if utf8.RuneCount(line)-1 > width {
			line = append([]byte(string([]rune(string(line))[:width-1])), "…\n"...)
		}
		out = append(out, line...)
	}
	return out
}
