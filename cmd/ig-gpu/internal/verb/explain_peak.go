// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
)

// peakFacts are when processes held the most, and which lines did. The zero value is ready.
type peakFacts struct {
	peaks profile.Peaks
	rows  map[profile.RowID]*peakRow
}

type peakRow struct {
	frame string
	where string // as ooms.Failure.Frame
	row   profile.Row
	peak  profile.PeakRow
}

// read takes in a reading of all rows.
func (p *peakFacts) read(at time.Time, ds datasource.DataSource, all []datasource.Data) {
	from, err := rows.Bind(ds)
	if err != nil {
		return // not the rows of cuda_alloc: there is no peak then
	}
	if p.rows == nil {
		p.rows = map[profile.RowID]*peakRow{}
	}
	for _, known := range p.rows {
		known.row.InuseBytes = 0 // until it is met
	}
	met := map[profile.RowID]bool{}
	for _, d := range all {
		id, values := from.ID(d), from.Values(d)
		known := p.rows[id]
		if known == nil {
			known = &peakRow{frame: lineOf(ds, d), where: cmp.Or(text(ds, d, "where"), text(ds, d, "frame")), row: profile.Row{Process: from.Process(d), Kind: id.Kind, Device: id.Device}}
			p.rows[id] = known
		}
		if met[id] { // before Linux 6.0: a row for each context
			values = values.Add(known.row.Values)
		}
		met[id] = true
		known.row.Values = values
	}
	p.peaks.Read(at, func(yield func(*profile.PeakRow, *profile.Row) bool) {
		for _, known := range p.rows {
			if !yield(&known.peak, &known.row) {
				return
			}
		}
	})
}

// highest is the peak of GPU memory of the process that held the most, and what each line
// held then, the largest first.
func (p *peakFacts) highest() (peak profile.Peak, lines []*place) {
	for _, other := range p.peaks.All() {
		if other.Layer == profile.Driver && !other.IsHost && other.Bytes > peak.Bytes {
			peak = other
		}
	}
	byFrame := map[string]*place{}
	for _, known := range p.rows {
		if known.peak.AtPeakBytes == 0 || !peak.Has(&known.row) {
			continue
		}
		at := byFrame[known.frame]
		if at == nil {
			at = &place{frame: known.frame}
			byFrame[known.frame] = at
			lines = append(lines, at)
		}
		at.now += uint64(known.peak.AtPeakBytes)
	}
	slices.SortFunc(lines, func(a, b *place) int {
		return cmp.Or(-cmp.Compare(a.now, b.now), cmp.Compare(a.frame, b.frame))
	})
	return peak, lines
}

// holder is the subject of a sentence about a peak. A process has one for each device and one for
// the host's memory, and the page's sums are of all of them.
func (p *peakFacts) holder(peak profile.Peak) string {
	for _, other := range p.peaks.All() {
		if other != peak && other.Layer == profile.Driver {
			return screen.Clean(peak.Holder())
		}
	}
	return "It"
}

// onGPUs returns the bytes held now that a vendor's driver counts: all but the host's memory.
func (p *peakFacts) onGPUs() (sum int64) {
	for _, known := range p.rows {
		if r := &known.row; r.Layer() == profile.Driver && r.Kind != "host" {
			sum += r.InuseBytes
		}
	}
	return sum
}

// freedIntoPools is the most that stream-ordered pools of a process (0: of all) may keep of what was freed: how much
// depends on their release thresholds.
func (p *peakFacts) freedIntoPools(pid uint32) (sum int64) {
	for _, known := range p.rows {
		if known.row.Kind == "pool" && (pid == 0 || known.row.Process.PID == pid) {
			sum += max(known.row.PeakBytes-known.row.InuseBytes, 0)
		}
	}
	return sum
}

// apart names the memory that is in the page's sum and not in the peak.
func (p *peakFacts) apart(peak profile.Peak) string {
	var host, unknown, elsewhere int64
	for _, known := range p.rows {
		switch r := &known.row; {
		case r.Layer() != profile.Driver || peak.Has(r):
		case r.Kind == "host":
			host += r.InuseBytes
		case r.Device == profile.UnknownDevice:
			unknown += r.InuseBytes
		default:
			elsewhere += r.InuseBytes
		}
	}
	var parts []string
	for _, part := range []struct {
		bytes int64
		what  string
	}{{host, "of the host's pinned memory"}, {unknown, "on an unknown GPU"}, {elsewhere, "on other GPUs or of other processes"}} {
		if part.bytes > 0 {
			parts = append(parts, profile.FormatBytes(part.bytes)+" "+part.what)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " Not in this figure: " + strings.Join(parts, ", ") + "."
}

// composePeak says what was held at the highest moment, where that is not what is held now.
func composePeak(p *page, f *facts, ids string) {
	peak, held := f.peaks.highest()
	if peak.Bytes == 0 {
		return
	}
	var now int64
	for _, known := range f.peaks.rows {
		if peak.Has(&known.row) {
			now += known.row.InuseBytes
		}
	}
	switch {
	case now == peak.Bytes && peak.MostBytes == peak.Bytes:
		p.say("", "%s held the most at the end of the watch: %s.%s", f.peaks.holder(peak), profile.FormatBytes(peak.Bytes), f.peaks.apart(peak))
		return
	case now == peak.Bytes:
		p.say("", "%s held the most at the end of the watch: %s; between two readings at most %s.%s", f.peaks.holder(peak),
			profile.FormatBytes(peak.Bytes), profile.FormatBytes(peak.MostBytes), f.peaks.apart(peak))
		return
	}
	p.say("ig-gpu record "+ids+" -o memory.pb.gz; ig-gpu report memory.pb.gz --sample peak_space", "%s.%s At that moment:\n%s", peak, f.peaks.apart(peak), lines(held, inUse, peak.Bytes))
}
