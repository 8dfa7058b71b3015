// SPDX-License-Identifier: Apache-2.0

package weave

import "github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"

const (
	// bucketNS is the resolution of rates.
	bucketNS = 100_000_000
	// openBuckets is the number of buckets that can still change: older bytes of a
	// longer transfer count in the oldest one.
	openBuckets = 100
)

// rate is bytes over time, as a counter in GB/s with one value per bucket.
type rate struct {
	name    string
	first   uint64 // number of the oldest open bucket
	bytes   []float64
	shown   float64
	started bool
}

// add spreads bytes evenly over the time from start to end.
func (r *rate) add(out track.Sink, pid uint32, start, end uint64, bytes uint64) {
	if !r.started {
		r.started = true
		r.first = start / bucketNS
	}
	start, end = max(start, r.first*bucketNS), max(end, r.first*bucketNS)
	if last := end / bucketNS; last >= r.first+openBuckets {
		r.close(out, pid, last-openBuckets+1)
		start = max(start, r.first*bucketNS)
	}
	first, last := start/bucketNS, end/bucketNS
	for uint64(len(r.bytes)) <= last-r.first {
		r.bytes = append(r.bytes, 0)
	}
	if first == last {
		r.bytes[first-r.first] += float64(bytes)
		return
	}
	perNS := float64(bytes) / float64(end-start)
	for b := first; b <= last; b++ {
		from, to := max(start, b*bucketNS), min(end, (b+1)*bucketNS)
		r.bytes[b-r.first] += perNS * float64(to-from)
	}
}

// close emits the buckets before one.
func (r *rate) close(out track.Sink, pid uint32, before uint64) {
	for ; r.first < before; r.first++ {
		value := 0.0
		if len(r.bytes) > 0 {
			value, r.bytes = r.bytes[0]/bucketNS, r.bytes[1:] // bytes per ns are GB per s
		} else if r.shown == 0 {
			r.first = before
			return
		}
		if value != r.shown {
			out.Counter(pid, r.name, r.first*bucketNS, value)
			r.shown = value
		}
	}
}

// end emits the remaining buckets and a final zero.
func (r *rate) end(out track.Sink, pid uint32) {
	r.close(out, pid, r.first+uint64(len(r.bytes))+1)
}
