// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/recent"
)

// Containers have the same library in files of their own, and its symbols are read once. That two files are the
// same is not known from their build id, which who makes a file chooses: a tenant could name another one's functions. So
// it is kept what was read of a file to make its table: another one with the same bytes there gives the same table.

const (
	// maxSpans bounds what is kept of a file; one of which more places were read has a table of its own.
	maxSpans = 1 << 14
	// maxContents bounds the contents of a build id.
	maxContents = 8
	// replayed is how much is read at once to compare.
	replayed = 1 << 20
)

// span is a place in a file.
type span struct{ at, bytes int64 }

// recorder reads a file and keeps what was read.
type recorder struct {
	file  *procmaps.File
	size  int64
	spans []span
	hash  maphash.Hash
	hung  bool // its file system did not answer
	short bool // a read failed, or gave fewer bytes: another file with the same bytes may give more
}

// hashSeed is secret: no one can make a file of the same hash.
var hashSeed = sync.OnceValue(maphash.MakeSeed)

func record(file *procmaps.File) *recorder {
	r := &recorder{file: file, size: file.Size()}
	r.hash.SetSeed(hashSeed())
	return r
}

func (r *recorder) ReadAt(b []byte, at int64) (int, error) {
	n, err := r.file.ReadAt(b, at)
	r.hung = r.hung || errors.Is(err, procmaps.ErrHangs)
	r.short = r.short || n < len(b)
	if n > 0 && len(r.spans) <= maxSpans {
		r.hash.Write(b[:n])
		if last := len(r.spans) - 1; last >= 0 && r.spans[last].at+r.spans[last].bytes == at {
			r.spans[last].bytes += int64(n)
		} else {
			r.spans = append(r.spans, span{at, int64(n)})
		}
	}
	return n, err
}

// evidence are the bytes of a file that were read, by their hash. nil: of no file.
type evidence struct {
	size  int64
	spans []span
	sum   uint64
}

// evidence returns that of all reads so far; isAll: no place is missing, and no read has failed.
func (r *recorder) evidence() (e *evidence, isAll bool) {
	if r == nil {
		return nil, true
	}
	return &evidence{r.size, slices.Clone(r.spans), r.hash.Sum64()}, len(r.spans) <= maxSpans && !r.short
}

// holds reports whether a file has the same bytes in the same places.
func (e *evidence) holds(r *recorder) bool {
	if e == nil || r == nil {
		return e == nil && r == nil
	}
	if e.size != r.size {
		return false
	}
	var hash maphash.Hash
	hash.SetSeed(hashSeed())
	b := make([]byte, replayed)
	for _, s := range e.spans {
		for done := int64(0); done < s.bytes; {
			part := b[:min(s.bytes-done, replayed)]
			if n, err := r.file.ReadAt(part, s.at+done); n < len(part) && err != nil {
				return false
			}
			hash.Write(part)
			done += int64(len(part))
		}
	}
	return hash.Sum64() == e.sum
}

// equals reports whether the same bytes of the same places were read.
func (e *evidence) equals(other *evidence) bool {
	if e == nil || other == nil {
		return e == other
	}
	return e.size == other.size && e.sum == other.sum && slices.Equal(e.spans, other.spans)
}

// content has what a table was made from: a library, and the debug file with more of its symbols.
type content struct {
	table       string // its id
	file, debug *evidence
}

// contentOf is that of files that were read; of too many places, or in part, it is none that others have.
func contentOf(file, debug *recorder) *content {
	f, isAll := file.evidence()
	d, isAllDebug := debug.evidence()
	if !isAll || !isAllDebug {
		return &content{}
	}
	return &content{file: f, debug: d}
}

// among returns which of some contents this one is, itself if none.
func (c *content) among(all []*content) *content {
	for _, other := range all {
		if other.file.equals(c.file) && other.debug.equals(c.debug) {
			return other
		}
	}
	return c
}

// contents are those that were read. The lock of the Resolver is held.
type contents struct {
	byBuild *recent.Cache[string, []*content] // build id and kind
	byFile  *recent.Cache[string, *content]   // identity of a file and kind
	made    int
}

func newContents() contents {
	return contents{
		byBuild: recent.New[string, []*content](knownFiles),
		byFile:  recent.New[string, *content](knownFiles),
	}
}

// candidates are the contents that a file may have, first the one that it had.
func (c *contents) candidates(l *loaded, of kind) (all []*content) {
	had, ok := c.byFile.Get(l.file + string(of))
	if ok {
		all = append(all, had)
	}
	if l.buildID == "" {
		return all
	}
	known, _ := c.byBuild.Get(l.buildID + string(of))
	for _, other := range known {
		if other != had {
			all = append(all, other)
		}
	}
	return all
}

// table is the id of the table of a file, empty if none was made.
func (c *contents) table(l *loaded, of kind) string {
	if had, ok := c.byFile.Get(l.file + string(of)); ok {
		return had.table
	}
	return ""
}

// put notes what a file has turned out to be, and returns the id of its table.
func (c *contents) put(l *loaded, of kind, found *content) string {
	if found.table == "" {
		c.made++
		found.table = strconv.Itoa(c.made)
		if l.buildID != "" && found.file != nil {
			known, _ := c.byBuild.Get(l.buildID + string(of))
			known = append(known, found)
			c.byBuild.Put(l.buildID+string(of), known[max(0, len(known)-maxContents):])
		}
	}
	c.byFile.Put(l.file+string(of), found)
	return found.table
}
