// SPDX-License-Identifier: Apache-2.0

package unwind

import "sort"

// Rows are the rules of the code between two places of the file. The first row is at `from`;
// code without a rule has rows of Kind None. Malformed information is such a row, too: an error
// is one of reading the file, and says nothing about its rules.
func (f *File) Rows(from, to uint64) ([]Row, error) {
	rows := []Row{{Offset: from}}
	f.rest, f.failed = maxReadOfCall, nil
	for _, l := range f.loads {
		if !l.exec || to <= l.off || from >= l.off+l.filesz {
			continue
		}
		begin, end := max(from, l.off), min(to, l.off+l.filesz)
		c := clip{rows: &rows, from: begin - l.off + l.addr, to: end - l.off + l.addr, shift: l.off - l.addr}
		f.segment(&c)
		if f.failed != nil {
			return nil, f.failed
		}
		if end < to {
			c.add(end-l.off+l.addr, Rule{})
		}
	}
	return rows, nil
}

// segment adds the rules of the addresses of c. A table that is cut short is one without rules from there on.
func (f *File) segment(c *clip) {
	isCut := false
	// The last function that begins at or before the first address.
	first := sort.Search(int(f.entries), func(i int) bool {
		function, _, err := f.entryAt(uint64(i))
		isCut = isCut || err != nil
		return err != nil || function > c.from
	})
	if isCut {
		return
	}
	for i := uint64(max(first-1, 0)); i < f.entries && i < uint64(first)+maxEntriesOfCall; i++ {
		function, at, err := f.entryAt(i)
		if err != nil || f.failed != nil || function >= c.to {
			return
		}
		end, ok := f.function(c, at, function)
		if !ok {
			c.add(function, Rule{})
			continue
		}
		c.add(end, Rule{}) // the next function often begins here and replaces it
	}
}

// function adds the rules of one FDE, if it is that of the function that the table says, and
// returns where the function ends.
func (f *File) function(c *clip, at, function uint64) (end uint64, ok bool) {
	e, err := f.fde(at)
	if err != nil || e.begin != function || e.end <= e.begin {
		return 0, false
	}
	if e.end <= c.from {
		return e.end, true
	}
	if c.work += len(e.program) + len(e.cie.program); c.work > maxWorkOfCall {
		return 0, false
	}
	c.begin = e.begin
	if err := e.run(f.machine, c.add); err != nil {
		return 0, false
	}
	return e.end, true
}

// clip collects rows of the addresses from..to.
type clip struct {
	rows     *[]Row
	from, to uint64
	shift    uint64 // from an address to its place in the file
	begin    uint64 // of the function whose rules are added
	work     int    // bytes of programs that were run
}

// add has a rule hold from an address on. Addresses come in ascending order; one before the
// last replaces what follows it.
func (c *clip) add(addr uint64, r Rule) {
	rows := *c.rows
	if addr >= c.to || len(rows) >= maxRowsOfCall {
		return
	}
	off := max(addr, c.from) + c.shift
	for len(rows) > 0 && rows[len(rows)-1].Offset >= off {
		rows = rows[:len(rows)-1]
	}
	begins := addr == c.begin && addr >= c.from && r != Rule{}
	if len(rows) == 0 || begins || rows[len(rows)-1].Rule != r {
		rows = append(rows, Row{Offset: off, Rule: r, Begins: begins})
	}
	*c.rows = rows
}
