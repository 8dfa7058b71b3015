// SPDX-License-Identifier: Apache-2.0

package weave

import (
	"fmt"
	"strconv"

	"github.com/gpu-gadgets/gpu-gadgets/internal/timeline/track"
)

type streamKey struct {
	process, stream uint64
	device          Device // of streams without a handle: each device has its own
	tid             uint32 // of ThreadsOwnStream
	track           string // see Call
}

func keyOf(c *Call) streamKey {
	key := streamKey{process: c.Process, stream: c.Stream, track: c.Track}
	if c.Stream <= ThreadsOwnStream {
		key.device = c.Device
	}
	if c.Stream == ThreadsOwnStream {
		key.tid = c.TID
	}
	return key
}

type stream struct {
	name   string // without its device
	device Device
	tracks []track.Track // with their newest ends
	ends   []uint64
	last   track.Arrow // from the newest launch, to be completed by a wait
	used   uint64
}

func (w *Weaver) stream(c *Call) *stream {
	key := keyOf(c)
	s := w.streams[key]
	if s == nil {
		if len(w.streams) >= maxStreams {
			evict(w.streams, func(s *stream) uint64 { return s.used }, nil)
		}
		s = &stream{name: "stream 0x" + strconv.FormatUint(c.Stream, 16)}
		switch {
		case c.Track != "":
			s.name = c.Track
		case c.Stream == DefaultStream:
			s.name = "default stream"
		case c.Stream == ThreadsOwnStream:
			s.name = fmt.Sprintf("default stream of thread %d", c.TID)
		}
		w.streams[key] = s
	}
	// Only a launch must be made in the stream's own context.
	if c.Track == "" && c.Device != 0 && c.Device != s.device && (s.device == 0 || c.Kind == Launch) {
		s.device = c.Device
		for _, on := range s.tracks {
			w.out.Name(on, s.title(), order(on))
		}
	}
	s.used = w.clock
	return s
}

// title returns the name of a stream's tracks.
func (s *stream) title() string {
	if n := s.device.Ordinal(); n >= 0 {
		return fmt.Sprintf("GPU %d, %s", n, s.name)
	}
	return s.name
}

// order sorts tracks of threads above all others.
func order(free track.Track) int { return 1_000_001 + int(free.ID-track.Free(0)) }
