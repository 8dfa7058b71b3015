// SPDX-License-Identifier: Apache-2.0

package collective

import "strconv"

// Kind is the kind of an operation.
type Kind uint8

// The kinds. Numbers are ours; 0 is none.
const (
	AllReduce Kind = iota + 1
	Broadcast
	Reduce
	AllGather
	ReduceScatter
	AllToAll
	Gather
	Scatter
	Send
	Recv
)

var kindNames = [...]string{"", "AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter", "Send", "Recv"}

// String is NCCL's name, without its prefix.
func (k Kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "operation " + strconv.Itoa(int(k))
}

// ParseKind is the inverse of String; 0 for other names.
func ParseKind(s string) Kind {
	for k := AllReduce; k <= Recv; k++ {
		if kindNames[k] == s {
			return k
		}
	}
	return 0
}

// IsPeer reports whether it is between two ranks, not all.
func (k Kind) IsPeer() bool { return k == Send || k == Recv }

// hasRoot reports whether all ranks must agree on the peer.
func (k Kind) hasRoot() bool { return k == Broadcast || k == Reduce || k == Gather || k == Scatter }

// reduces reports whether all ranks must agree on the reduction.
func (k Kind) reduces() bool { return k == AllReduce || k == Reduce || k == ReduceScatter }

// DType is ncclDataType_t (nccl.h of 2.24 and later; values never change).
type DType uint8

var dtypes = [...]struct {
	name string
	size uint64
}{
	{"int8", 1}, {"uint8", 1}, {"int32", 4}, {"uint32", 4}, {"int64", 8}, {"uint64", 8},
	{"float16", 2}, {"float32", 4}, {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1},
}

// DTypes of nccl.h that tests and callers name.
const (
	Int8     DType = 0
	Float16  DType = 6
	Float32  DType = 7
	Bfloat16 DType = 9
)

// Size is that of an element in bytes; 0 for an unknown type.
func (d DType) Size() uint64 {
	if int(d) < len(dtypes) {
		return dtypes[d].size
	}
	return 0
}

// String is the type's name in nccl.h.
func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return "dtype " + strconv.Itoa(int(d))
}

// showsAll reports whether its completion on a rank shows that all ranks have issued it. A root that
// sends is done as soon as its data is in the buffers of the next rank, as is a rank that passes it
// on (NCCL's src/device/broadcast.h and reduce.h). Without data there is nothing to wait for, nor for one that is not executed.
func (o *Operation) showsAll(rank int) bool {
	if o.Captured {
		return false
	}
	switch o.Kind {
	case AllReduce, AllGather, ReduceScatter, AllToAll:
		return o.Count > 0
	case Reduce, Gather:
		return o.Count > 0 && o.Peer == rank
	}
	return false
}

var reductions = [...]string{"sum", "prod", "max", "min", "avg"}

// custom is the reduction of a signature for all that ncclRedOpCreatePreMulSum makes. Their numbers
// cannot be compared: NCCL combines them with the address of the communicator (ncclUserRedOpMangle in
// its src/include/comm.h), so they differ between processes.
const custom = int32(len(reductions))

// reductionName of ncclRedOp_t.
func reductionName(n int32) string {
	if n >= 0 && n < custom {
		return reductions[n]
	}
	return "custom reduction"
}

// Signature has the parameters on which all ranks must agree for a collective, or both
// ends for a send and its receive. Equal signatures match.
type Signature struct {
	Kind      Kind
	Count     uint64
	DType     DType
	Reduction int32
	Root      int
}

// Signature of an operation. A send and its receive have the same.
func (o Operation) Signature() Signature {
	s := Signature{Kind: o.Kind, Count: o.Count, DType: o.DType, Root: None}
	if s.Kind == Recv {
		s.Kind = Send
	}
	if o.Kind.hasRoot() {
		s.Root = o.Peer
	}
	if o.Kind.reduces() {
		s.Reduction = o.Reduction
		if s.Reduction < 0 || s.Reduction > custom {
			s.Reduction = custom
		}
	}
	return s
}

// isAlike reports whether two operations move the same bytes in the same way, if not as elements of one type.
func (o *Operation) isAlike(p *Operation) bool {
	return o.Kind == p.Kind && o.Peer == p.Peer && o.Bytes() == p.Bytes() && o.Reduction == p.Reduction
}

// Number is a hash of it that a float64 holds exactly, so that a metric can carry it.
func (s Signature) Number() uint64 {
	h := uint64(14695981039346656037) // FNV-1a over the fields
	for _, v := range [...]uint64{uint64(s.Kind), s.Count, uint64(s.DType), uint64(uint32(s.Reduction)), uint64(int64(s.Root))} {
		for range 8 {
			h = (h ^ (v & 0xff)) * 1099511628211
			v >>= 8
		}
	}
	return h >> 11 // 53 bits
}

// String is its form in a verdict.
func (s Signature) String() string {
	text := s.Kind.String() + " of " + strconv.FormatUint(s.Count, 10) + " " + s.DType.String()
	if s.Kind.reduces() {
		text += ", " + reductionName(s.Reduction)
	}
	if s.Root != None {
		text += ", root " + strconv.Itoa(s.Root)
	}
	return text
}
