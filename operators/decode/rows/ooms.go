// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"math"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

// OOMs reads the events of refused allocations.
type OOMs struct {
	processFields
	timestamp, api, errorName, errorRaw datasource.FieldAccessor
	refusedBy, kind, device             datasource.FieldAccessor
	requested, inuse, pool              datasource.FieldAccessor
	holderStacks, holderBytes           datasource.FieldAccessor
}

// BindOOMs finds the fields of the data source `ooms`.
func BindOOMs(ds datasource.DataSource) (*OOMs, error) {
	process, err := bindProcess(ds)
	return &OOMs{
		processFields: process,
		timestamp:     ds.GetField("timestamp_raw"), api: ds.GetField("api"),
		refusedBy: ds.GetField("refused_by"), kind: ds.GetField("kind"), device: ds.GetField("device"),
		errorName: ds.GetField("error"), errorRaw: ds.GetField("error_raw"),
		requested: ds.GetField("requested_bytes"), inuse: ds.GetField("inuse_bytes"), pool: ds.GetField("pool_allocated_bytes"),
		holderStacks: ds.GetField("holder_stacks"), holderBytes: ds.GetField("holder_bytes"),
	}, err
}

// Error is the error of an event, by its name, or its number if it has none.
func (f *OOMs) Error(d datasource.Data) string { return word(f.errorName, f.errorRaw, d) }

// Stacks names stacks; implemented by *symbols.Stacks.
type Stacks interface {
	Stack(process uint64, pid uint32, id uint64) *symbols.Named
}

// Read returns one event with its stacks named. With an error the holders are missing;
// the rest is valid.
func (f *OOMs) Read(d datasource.Data, stacks Stacks, now time.Time) (profile.OOM, error) {
	process := f.Process(d)
	stackID, _ := number(f.stackID, d)
	o := profile.OOM{
		Time: now, Process: process,
		Stack: stacks.Stack(process.ID, process.PID, stackID).Stack,
		Span:  profile.ParseSpan(text(f.spanID, d)),
		API:   text(f.api, d), RefusedBy: text(f.refusedBy, d), Error: f.Error(d),
		Device: profile.UnknownDevice, RequestedBytes: value(f.requested, d), InuseBytes: value(f.inuse, d), PoolBytes: value(f.pool, d),
	}
	if device, ok := number(f.device, d); ok {
		o.Device = profile.RefusedOn(text(f.kind, d), int32(device))
	}
	ns, _ := number(f.timestamp, d)
	if at, ok := eventTime(ns); ok {
		o.Time = at
	}
	if f.holderStacks == nil || f.holderBytes == nil {
		return o, nil
	}
	holders, err := symbolize.Holders(f.holderStacks, f.holderBytes, d)
	if err != nil {
		return o, fmt.Errorf("read holders: %w", err)
	}
	for _, h := range holders {
		o.Holders = append(o.Holders, profile.Holder{Stack: stacks.Stack(process.ID, process.PID, h.StackID).Stack, Bytes: h.Bytes})
	}
	return o, nil
}

// eventTime reads a timestamp_raw, which the operator formatters has converted from
// nanoseconds since boot to nanoseconds since 1970. Times since boot are recognised by
// their size: they would need an uptime of 31 years.
func eventTime(ns uint64) (time.Time, bool) {
	const year2001 = 1e18
	return time.Unix(0, int64(ns)), ns > year2001 && ns <= math.MaxInt64
}
