// SPDX-License-Identifier: Apache-2.0

package pyroscope

import (
	"errors"
	"strings"
	"sync"
	"time"

	pushv1 "github.com/grafana/pyroscope/api/gen/proto/go/push/v1"
	typesv1 "github.com/grafana/pyroscope/api/gen/proto/go/types/v1"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
)

const (
	// keepRefused is how long a refused series is sent on its own: Pyroscope forgets series
	// that have had no profiles for some time, and takes others then.
	keepRefused = 10 * time.Minute
	// maxRefused bounds the series remembered: at most about 30 MB.
	maxRefused = 64 << 10
)

// Split makes a request of each series. Pyroscope stores the series of a request on their own, and
// its answer to one of which it has refused some does not say which: repeated as it is, such a request
// has the others stored again each time.
func Split(r Request) (parts []Request, bytes []int64) {
	for _, s := range r.Push.Series {
		push := &pushv1.PushRequest{Series: []*pushv1.RawProfileSeries{s}}
		size := int64(proto.Size(push))
		parts, bytes = append(parts, Request{push, size, r.Unpacked / int64(len(r.Push.Series))}), append(bytes, size)
	}
	return parts, bytes
}

// refusals are the series that the server has refused, by their labels. They are sent on their own,
// or all that is sent with them would be split, and stored twice, in each window.
type refusals struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func keyOf(labels []*typesv1.LabelPair) string {
	var b strings.Builder
	for _, l := range labels {
		b.WriteString(l.Name)
		b.WriteByte(0)
		b.WriteString(l.Value)
		b.WriteByte(0)
	}
	return b.String()
}

// note remembers the answer to a request of one series.
func (r *refusals) note(push *pushv1.PushRequest, err error, now time.Time) {
	if len(push.Series) != 1 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var answered *queue.AnsweredError
	switch {
	case errors.As(err, &answered) && answered.IsOwn:
		if r.last == nil || len(r.last) >= maxRefused {
			r.last = map[string]time.Time{}
		}
		r.last[keyOf(push.Series[0].Labels)] = now
	case err == nil && len(r.last) > 0:
		delete(r.last, keyOf(push.Series[0].Labels))
	}
}

func (r *refusals) has(labels []*typesv1.LabelPair, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.last) == 0 {
		return false
	}
	key := keyOf(labels)
	last, ok := r.last[key]
	if ok && now.Sub(last) > keepRefused {
		delete(r.last, key)
		ok = false
	}
	return ok
}
