// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"fmt"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// operations is the gadget's data source with sums by communicator, kind, type and size.
const operations = "operations"

// addBandwidth adds algbw and busbw to the rows of operations, in GB/s as nccl-tests
// print them. An operation's time is from its call to the return of the first wait that
// covers it, so it is at least as fast as that.
func addBandwidth(ds datasource.DataSource) error {
	field := func(name, description string) (datasource.FieldAccessor, error) {
		return ds.AddField(name, api.Kind_Float64, datasource.WithAnnotations(map[string]string{
			"description": description, "columns.width": "9", "columns.alignment": "right", "columns.precision": "2"}))
	}
	op, size, bytes, elapsed := ds.GetField("op"), ds.GetField("size"), ds.GetField("timed_bytes_raw"), ds.GetField("timed_ns")
	if bytes == nil {
		bytes = ds.GetField("timed_bytes")
	}
	if op == nil || size == nil || bytes == nil || elapsed == nil {
		return nil // an older gadget
	}
	alg, err := field("algbw", "Algorithm bandwidth, at least, in GB/s: size by time from the call to the end of the wait for it")
	if err != nil {
		return err
	}
	bus, err := field("busbw", "Bus bandwidth, at least, in GB/s, as nccl-tests define it")
	if err != nil {
		return err
	}
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		name, err1 := op.String(d)
		ranks, err2 := size.Int32(d)
		n, err3 := bytes.Uint64(d)
		ns, err4 := elapsed.Uint64(d)
		for _, err := range []error{err1, err2, err3, err4} {
			if err != nil {
				return nil // an error would keep the row from other subscribers
			}
		}
		a, b := collective.Bandwidth(collective.ParseKind(name), int(ranks), n, time.Duration(ns))
		if err := alg.PutFloat64(d, a/1e9); err != nil {
			return fmt.Errorf("write algbw: %w", err)
		}
		return bus.PutFloat64(d, b/1e9)
	}, 100)
}
