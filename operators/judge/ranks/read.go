// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/nccl"
)

// row is one rank as the gadget nccl_trace reports it.
type row struct {
	collective.Observation
	mntns    uint64
	tid      uint32
	handle   uint64
	exited   collective.Time // boot clock; 0: it runs
	inactive string          // aborted or destroyed, or creating
	split    split
	// container has only its names.
	container profile.Process
	// lines are of Python, innermost first, where the newest operation was called; of
	// rows of other nodes alone.
	lines []string
}

// reader binds the fields of the data source communicators.
type reader struct {
	process, handle, identity, mntns, exit            datasource.FieldAccessor
	pid, tid, late                                    datasource.FieldAccessor
	rank, size, device                                datasource.FieldAccessor
	name, comm, state                                 datasource.FieldAccessor
	collectives, completed, completedAt               datasource.FieldAccessor
	stream, pendingCovered, pendingAt, now, newestID  datasource.FieldAccessor
	ring                                              datasource.FieldAccessor
	namespace, pod, container                         datasource.FieldAccessor // nil where nothing names them
	parent, created, key, parentRank, oldest, digests datasource.FieldAccessor // nil in older gadgets
}

func bind(ds datasource.DataSource) (*reader, error) {
	r := &reader{}
	for name, to := range map[string]*datasource.FieldAccessor{
		"process": &r.process, "communicator": &r.handle, "identity": &r.identity, "proc.mntns_id": &r.mntns,
		"proc.pid": &r.pid, "proc.comm": &r.comm, "tid": &r.tid, "late": &r.late, "rank": &r.rank, "size": &r.size,
		"device": &r.device, "name": &r.name, "state": &r.state, "collectives": &r.collectives,
		"completed_collectives": &r.completed, "completed_collective_ns": &r.completedAt, "stream": &r.stream,
		"pending_covered_ns": &r.pendingCovered, "pending_boot_ns": &r.pendingAt, "now_boot_ns": &r.now,
		"exit_boot_ns": &r.exit, "stack_id": &r.newestID, "ring": &r.ring,
	} {
		if *to = ds.GetField(name); *to == nil {
			return nil, fmt.Errorf("%s has no field %s: the gadget is older or newer than this program", ds.Name(), name)
		}
	}
	r.namespace, r.pod, r.container = ds.GetField("k8s.namespace"), ds.GetField("k8s.podName"), ds.GetField("k8s.containerName")
	if r.container == nil {
		r.container = ds.GetField("runtime.containerName")
	}
	r.parent, r.created, r.key, r.parentRank = ds.GetField("parent"), ds.GetField("created_boot_ns"), ds.GetField("key"), ds.GetField("parent_rank")
	r.oldest, r.digests = ds.GetField("oldest"), ds.GetField("digests")
	return r, nil
}

// Layout of struct nccl_operation (bpf/nccl/communicators.h), whose mirror is
// nccl.Operation.
const (
	operationSize = 96

	atSeq, atMatch, atEnter, atReturn, atDone, atCount, atStream, atStack = 0, 8, 32, 40, 48, 56, 64, 72
	atPeer, atReduction, atOp, atType, atFlags                            = 84, 88, 92, 93, 94
)

// read makes an observation of a row. ok is false for a communicator of which it is
// not known who this rank is; if that may be derived, its rank is -1.
func (r *reader) read(d datasource.Data) (out row, ok bool, err error) {
	u64 := func(f datasource.FieldAccessor) (n uint64) {
		if err == nil {
			n, err = f.Uint64(d)
		}
		return n
	}
	u32 := func(f datasource.FieldAccessor) (n uint32) {
		if err == nil {
			n, err = f.Uint32(d)
		}
		return n
	}
	i32 := func(f datasource.FieldAccessor) (n int32) {
		if err == nil {
			n, err = f.Int32(d)
		}
		return n
	}
	text := func(f datasource.FieldAccessor) (s string) {
		if err == nil {
			s, err = f.String(d)
		}
		return s
	}
	size := int(i32(r.size))
	out = row{
		Observation: collective.Observation{
			At:           collective.Time(u64(r.now)),
			Process:      collective.Process{ID: u64(r.process), PID: u32(r.pid), Comm: text(r.comm)},
			Communicator: collective.Communicator{Hash: u64(r.identity), Name: text(r.name), Size: max(size, 0)},
			Rank:         int(i32(r.rank)), Device: int(i32(r.device)),
			Issued: u64(r.collectives), Done: u64(r.completed), DoneAt: collective.Time(u64(r.completedAt)),
			Late: u32(r.late) != 0,
		},
		mntns: u64(r.mntns), tid: u32(r.tid), handle: u64(r.handle), exited: collective.Time(u64(r.exit)), inactive: text(r.state),
	}
	for _, c := range []struct {
		from datasource.FieldAccessor
		to   *string
	}{{r.namespace, &out.container.Namespace}, {r.pod, &out.container.Pod}, {r.container, &out.container.Container}} {
		if c.from != nil {
			*c.to = text(c.from)
		}
	}
	if out.isCreating() {
		out.tid = uint32(out.handle) // creating_handle() of bpf/nccl/create.h
	}
	if r.parent != nil && r.created != nil && r.key != nil && r.parentRank != nil {
		out.split = split{parent: u64(r.parent), created: collective.Time(u64(r.created)), key: int(i32(r.key)), parentRank: int(i32(r.parentRank))}
	}
	stream, covered, pending := u64(r.stream), u64(r.pendingCovered), u64(r.pendingAt)
	if err != nil {
		return out, false, err
	}
	all := make([]collective.Operation, 0, collective.History+1)
	if r.oldest != nil {
		all = appendOperations(all, r.oldest.Get(d), stream, covered, pending)
		if len(all) != 1 || !isOldest(&all[0], &out.Observation) {
			all = all[:0]
		}
	}
	out.Operations = appendOperations(all, r.ring.Get(d), stream, covered, pending)
	if r.digests != nil {
		out.Digests = digestsOf(r.digests.Get(d))
	}
	if out.Done > out.Issued {
		out.Done = out.Issued // an operation took its number back
	}
	if out.Communicator.Hash == 0 {
		// No other is the same: it can be shown, and compared with nothing.
		out.Communicator.Hash = out.Process.ID ^ out.handle
		out.Late = true
	}
	return out, out.Rank >= 0 || out.split.parent != 0, nil
}

// appendOperations appends those of a ring, oldest first. Those on the stream that were issued before covered
// were seen not to be done, at pending. By hand, because it is for each rank and second.
func appendOperations(out []collective.Operation, ring []byte, stream, covered, pending uint64) []collective.Operation {
	first := len(out)
	for ; len(ring) >= operationSize; ring = ring[operationSize:] {
		b := ring[:operationSize]
		at := func(offset int) uint64 { return binary.NativeEndian.Uint64(b[offset:]) }
		if at(atSeq) == 0 || b[atFlags]&nccl.Failed != 0 {
			continue
		}
		op := collective.Operation{
			Seq: at(atMatch), Kind: collective.Kind(b[atOp]), DType: collective.DType(b[atType]), Count: at(atCount),
			Reduction: int32(binary.NativeEndian.Uint32(b[atReduction:])), Peer: int(int32(binary.NativeEndian.Uint32(b[atPeer:]))),
			Stream: at(atStream), Enter: collective.Time(at(atEnter)), Return: collective.Time(at(atReturn)),
			DoneBy: collective.Time(at(atDone)), Stack: at(atStack), Captured: b[atFlags]&nccl.Captured != 0,
		}
		if op.Kind < collective.AllReduce || op.Kind > collective.Recv {
			continue
		}
		if op.DoneBy == 0 && !op.Captured && op.Stream == stream && at(atEnter) < covered {
			op.PendingAt = collective.Time(pending)
		}
		out = append(out, op)
	}
	// The ring is by number modulo its size; they were entered one after the other.
	slices.SortStableFunc(out[first:], func(a, b collective.Operation) int { return cmp.Compare(a.Enter, b.Enter) })
	return out
}

// isOldest reports whether what the gadget keeps beside the ring is a collective that was issued and is not known to be done.
func isOldest(op *collective.Operation, o *collective.Observation) bool {
	return !op.Kind.IsPeer() && op.DoneBy == 0 && op.Seq > o.Done && op.Seq <= o.Issued
}

// digestsOf the bytes of digests; nil if they are too few.
func digestsOf(b []byte) collective.Digests {
	if len(b) < 8*collective.DigestCount {
		return nil
	}
	out := make(collective.Digests, collective.DigestCount)
	for n := range out {
		out[n] = binary.NativeEndian.Uint64(b[8*n:])
	}
	return out
}

// peers is the data source of sends and receives.
type peersReader struct {
	process, handle, issued, completed, enter datasource.FieldAccessor
	peer, op                                  datasource.FieldAccessor
}

func bindPeers(ds datasource.DataSource) (*peersReader, error) {
	r := &peersReader{}
	for name, to := range map[string]*datasource.FieldAccessor{
		"process": &r.process, "communicator": &r.handle, "issued": &r.issued, "completed": &r.completed,
		"enter_boot_ns": &r.enter, "peer": &r.peer, "op": &r.op,
	} {
		if *to = ds.GetField(name); *to == nil {
			return nil, fmt.Errorf("%s has no field %s: the gadget is older or newer than this program", ds.Name(), name)
		}
	}
	return r, nil
}

// rankKey is a communicator in a process.
type rankKey struct{ process, handle uint64 }

func (r *peersReader) read(d datasource.Data) (rankKey, collective.Progress, error) {
	var key rankKey
	var p collective.Progress
	var err error
	u64 := func(f datasource.FieldAccessor) (n uint64) {
		if err == nil {
			n, err = f.Uint64(d)
		}
		return n
	}
	key = rankKey{u64(r.process), u64(r.handle)}
	p.Issued, p.Done, p.Enter = u64(r.issued), u64(r.completed), collective.Time(u64(r.enter))
	if err != nil {
		return key, p, err
	}
	peer, err := r.peer.Int32(d)
	if err != nil {
		return key, p, err
	}
	op, err := r.op.String(d)
	p.Peer, p.Kind = int(peer), collective.ParseKind(op)
	p.Done = min(p.Done, p.Issued)
	return key, p, err
}

// all rows, by rank.
func (r *peersReader) all(rows datasource.DataArray) (map[rankKey][]collective.Progress, error) {
	fresh := map[rankKey][]collective.Progress{}
	for n := range rows.Len() {
		key, p, err := r.read(rows.Get(n))
		if err != nil {
			return nil, fmt.Errorf("read a peer: %w", err)
		}
		if p.Kind.IsPeer() {
			fresh[key] = append(fresh[key], p)
		}
	}
	return fresh, nil
}
