// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// quiet takes all windows.
type quiet struct{}

func (quiet) Interval() time.Duration          { return time.Second }
func (quiet) Offer(close func() window.Window) { close() }
func (quiet) Put(window.Window)                {}
func (quiet) OOM(profile.OOM)                  {}
func fuzzed(s Sender) *Feed {
	return New(Config{Sender: s, Store: &metrics.Store{}, Node: "a", Gadget: "cuda_alloc", Texts: &Texts{}, IsNew: true})
}

// A daemon may announce and send anything.
func FuzzPackets(f *testing.F) {
	d := newDaemon(f)
	d.allocated(300)
	d.refused(time.Unix(1, 0))
	info, err := proto.Marshal(d.info)
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range d.sent {
		f.Add(info, e.Payload, e.DataSourceID, uint32(1))
	}
	f.Add(info, []byte{}, uint32(1), uint32(5000))
	f.Fuzz(func(t *testing.T, announced, payload []byte, source, seq uint32) {
		info := &api.GadgetInfo{}
		if proto.Unmarshal(announced, info) != nil {
			return
		}
		feed := fuzzed(quiet{})
		c, err := feed.Connect(info)
		if err != nil {
			return
		}
		now := time.Unix(100, 0)
		for range 2 {
			_ = c.Take(&api.GadgetEvent{Seq: seq, DataSourceID: source, Payload: payload}, now)
			_ = c.Settle(now)
			now = now.Add(time.Minute)
		}
		feed.Disconnected(now)
		feed.Hide()
	})
}
