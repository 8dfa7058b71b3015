// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"io"
	"net/http"
	"testing"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// busyNode is 200 processes with 5,000 stacks, of two kinds on one device each.
func busyNode() []profile.Row {
	kinds := []string{"device", "pool"}
	rows := make([]profile.Row, 5000)
	for n := range rows {
		rows[n] = held(proc(uint64(n%200)+1, uint32(n%200)+1), kinds[n/200%2], 0, int64(n)+100, 10)
	}
	return rows
}

// BenchmarkRows is the work of every second.
func BenchmarkRows(b *testing.B) {
	run := (&Store{}).NewRun("cuda_alloc")
	rows := busyNode()
	b.ReportAllocs()
	for b.Loop() {
		run.Rows(rows, over())
	}
}

// BenchmarkScrape is the work of a scrape.
func BenchmarkScrape(b *testing.B) {
	store := &Store{}
	p, err := newPublisher(settings{listen: "127.0.0.1:0", compat: true}, &content{store: store, queues: &exporters.Registry{}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer p.close(b.Context())
	store.NewRun("cuda_alloc").Rows(busyNode(), over())
	b.ReportAllocs()
	for b.Loop() {
		response, err := http.Get("http://" + p.addr.String() + "/metrics")
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if err != nil || n < 100000 {
			b.Fatal(n, err)
		}
	}
}
