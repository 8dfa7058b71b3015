// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// KindHost is pinned memory of the host, which is not on the device of its row.
const KindHost = "host"

// Peak is the moment at which a process held the most on a device, or the most pinned
// memory of the host in contexts of a device.
type Peak struct {
	Process Process
	Device  int32
	Layer   Layer
	IsHost  bool
	// At is the reading that saw it, Bytes what the rows held then.
	At    time.Time
	Bytes int64
	// MostBytes is the most that the process may have held at a moment between two
	// readings: what each row held at the first of the two and was given until the
	// second, but never more than the most that the row ever held. Where it is Bytes,
	// the peak is exact.
	MostBytes int64
}

// Has reports whether the row's memory is part of the peak.
func (p Peak) Has(r *Row) bool {
	return r.peakKey() == peakKey{p.Process.ID, p.Device, p.Layer, p.IsHost}
}

// String is the peak as a sentence.
func (p Peak) String() string {
	what := ""
	if p.Layer == Torch {
		what = " in tensors"
	}
	between := ", exactly"
	if p.MostBytes > p.Bytes {
		between = fmt.Sprintf("; between two readings at most %s", FormatBytes(p.MostBytes))
	}
	return fmt.Sprintf("%s[%d] held the most%s%s at %s: %s%s", p.Process.Comm, p.Process.PID, what, p.where(),
		p.At.Format(time.TimeOnly), FormatBytes(p.Bytes), between)
}

// Holder names the process and where its memory is.
func (p Peak) Holder() string {
	return fmt.Sprintf("%s[%d]%s", p.Process.Comm, p.Process.PID, p.where())
}

// where the memory is.
func (p Peak) where() string {
	switch {
	case p.IsHost && p.Device >= 0:
		return fmt.Sprintf(" of the host's memory in contexts of GPU %d", p.Device)
	case p.IsHost:
		return " of the host's memory"
	case p.Device >= 0:
		return fmt.Sprintf(" on GPU %d", p.Device)
	}
	return ""
}

// Peaks finds the moments at which processes held the most, from readings of their rows.
// The zero value is ready; it must not be used concurrently.
//
// A reading takes some milliseconds, row by row. A row that changes meanwhile counts as it
// was when its turn came.
type Peaks struct{ all map[peakKey]*peak }

type peakKey struct {
	process uint64
	device  int32
	layer   Layer
	isHost  bool
}

func (r *Row) peakKey() peakKey {
	return peakKey{r.Process.ID, r.Device, r.Layer(), r.Kind == KindHost}
}

type peak struct {
	Peak
	sum, most int64 // of the present reading
}

// PeakRow is the state of a row that Peaks keeps.
type PeakRow struct {
	// AtPeakBytes are the bytes that the row held at its process's peak on its device.
	AtPeakBytes  int64
	inuse, alloc int64 // at the reading before
}

// Read takes in a reading of all rows: what is remembered of each row, and the row as it is now.
// Rows that are gone hold nothing.
func (p *Peaks) Read(at time.Time, rows iter.Seq2[*PeakRow, *Row]) {
	if p.all == nil {
		p.all = map[peakKey]*peak{}
	}
	for _, of := range p.all {
		of.sum, of.most = 0, 0
	}
	for known, row := range rows {
		of := p.all[row.peakKey()]
		if of == nil {
			of = &peak{Peak: Peak{Process: row.Process, Device: row.Device, Layer: row.Layer(), IsHost: row.Kind == KindHost}}
			p.all[row.peakKey()] = of
		}
		of.sum += row.InuseBytes
		most := known.inuse + max(row.AllocBytes-known.alloc, 0)
		of.most += max(min(most, row.PeakBytes), row.InuseBytes)
	}
	for known, row := range rows {
		if of := p.all[row.peakKey()]; of.sum > of.Bytes {
			known.AtPeakBytes = row.InuseBytes
		}
		known.inuse, known.alloc = row.InuseBytes, row.AllocBytes
	}
	for _, of := range p.all {
		if of.sum > of.Bytes {
			of.Bytes, of.At = of.sum, at
		}
		of.MostBytes = max(of.MostBytes, of.most)
	}
}

// Restart forgets the peaks, not the rows: those of what follows are searched for.
func (p *Peaks) Restart() { clear(p.all) }

// Forget drops the peaks of processes.
func (p *Peaks) Forget(of func(process uint64) bool) {
	maps.DeleteFunc(p.all, func(key peakKey, _ *peak) bool { return of(key.process) })
}

// All are the peaks, by process, device and layer; the host's memory comes last.
func (p *Peaks) All() []Peak {
	var all []Peak
	for _, of := range p.all {
		if of.Bytes > 0 {
			all = append(all, of.Peak)
		}
	}
	slices.SortFunc(all, func(a, b Peak) int {
		return cmp.Or(compareProcess(a.Process, b.Process), compareBool(a.IsHost, b.IsHost), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Layer, b.Layer))
	})
	return all
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
