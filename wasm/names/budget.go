// SPDX-License-Identifier: Apache-2.0

package names

// Budget shares the room of a packet among the names of its rows. A gRPC message
// of more than 4 MiB ends the session of kubectl gadget (ig sets no other limit
// than gRPC's default), and all rows of a table are one message.
type Budget struct {
	bytes, rows int
}

const (
	packetBytes = 4 << 20
	// rowBytes is the size of a row without names: about 250 of our own fields, 40
	// of field headers, and the human-readable texts of ig, pod and container.
	rowBytes = 600
)

// NewBudget is for a packet of so many rows.
func NewBudget(rows int) Budget {
	return Budget{bytes: max(packetBytes-rows*rowBytes, 0), rows: rows}
}

// Fit cuts the names of the next row to its share. What a row leaves, the next
// ones may use; the frame, which tables show, comes before the list, which rows
// hold twice.
func (b *Budget) Fit(t Text) Text {
	share := b.bytes
	if b.rows > 1 {
		share /= b.rows
	}
	share = max(share, 0)
	t = t.cut(min(share, maxFrame), max(share-min(len(t.Frame), maxFrame), 0)/2)
	b.bytes -= t.rowBytes()
	b.rows--
	return t
}

// rowBytes is the size that the names add to a row.
func (t Text) rowBytes() int { return len(t.Frame) + 2*len(t.Frames) }
