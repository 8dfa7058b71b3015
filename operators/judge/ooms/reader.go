// SPDX-License-Identifier: Apache-2.0

package ooms

import (
	"cmp"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// Reader reads failures from the data source. It is safe for concurrent use.
type Reader struct {
	comm, api, reason, holders, by, kind datasource.FieldAccessor
	where, frame                         datasource.FieldAccessor
	pid, device, requested, inuse, at    datasource.FieldAccessor
	allocated, reserved                  datasource.FieldAccessor
	pieces, larger, apart, kept          datasource.FieldAccessor

	mu      sync.Mutex
	refused refusals
}

// NewReader finds the fields, when those of other operators are there. A field that is missing in a gadget is empty.
func NewReader(ds datasource.DataSource) *Reader {
	return &Reader{
		comm: ds.GetField("proc.comm"), pid: ds.GetField("proc.pid"), api: ds.GetField("api"), reason: ds.GetField("error"),
		where: ds.GetField("where"), frame: ds.GetField("frame"), holders: ds.GetField("holders"), by: ds.GetField("refused_by"), kind: ds.GetField("kind"),
		device: ds.GetField("device"), requested: ds.GetField("requested_bytes"), inuse: ds.GetField("inuse_bytes"), at: ds.GetField("timestamp_raw"),
		allocated: ds.GetField("pool_allocated_bytes"), reserved: ds.GetField("pool_reserved_bytes"), pieces: ds.GetField("pool_pieces_bytes"),
		larger: ds.GetField("pool_larger_bytes"), apart: ds.GetField("pool_apart_bytes"), kept: ds.GetField("pool_kept_bytes"),
		refused: refusals{},
	}
}

// Read returns the failure of an event. Events are read in their order: PyTorch's pool asks the driver before it refuses.
func (r *Reader) Read(d datasource.Data) Failure {
	f := Failure{
		Comm: text(r.comm, d), API: text(r.api, d), Error: text(r.reason, d), Frame: cmp.Or(text(r.where, d), text(r.frame, d)), Holders: text(r.holders, d), By: text(r.by, d),
		Device: profile.UnknownDevice, RequestedBytes: number(r.requested, d), InuseBytes: number(r.inuse, d), At: number(r.at, d),
		Pool: Pool{
			AllocatedBytes: number(r.allocated, d), ReservedBytes: number(r.reserved, d),
			Unused: Unused{
				PiecesBytes: number(r.pieces, d), LargerBytes: number(r.larger, d),
				ApartBytes: number(r.apart, d), KeptBytes: number(r.kept, d),
			},
		},
	}
	if r.pid != nil {
		f.PID, _ = r.pid.Uint32(d)
	}
	if r.device != nil {
		kind := text(r.kind, d)
		device, _ := r.device.Int32(d)
		f.Device, f.IsHost = profile.RefusedOn(kind, device), kind == profile.KindHost
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.refused.before(&f); before != nil {
		f.Pool.Refused, f.Pool.RefusedBytes, f.Pool.By = before.API, before.RequestedBytes, before.By
	}
	return f
}

func text(field datasource.FieldAccessor, d datasource.Data) string {
	if field == nil {
		return ""
	}
	s, _ := field.String(d)
	return s
}

func number(field datasource.FieldAccessor, d datasource.Data) uint64 {
	if field == nil {
		return 0
	}
	n, _ := field.Uint64(d)
	return n
}
