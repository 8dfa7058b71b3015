// SPDX-License-Identifier: Apache-2.0

package usdt

import (
	"bytes"
	"encoding/binary"
)

// wireArgument mirrors struct usdt_argument of bpf/call/usdt.h.
type wireArgument struct {
	Value       int64
	Base, Index uint16
	Kind, Bytes uint8
	Signed      uint8
	Shift       uint8
}

// Encode makes a struct usdt_site of bpf/call/usdt.h, of at most MaxArguments.
func Encode(all []Argument) []byte {
	var site [MaxArguments]wireArgument
	for n, a := range all[:min(len(all), MaxArguments)] {
		site[n] = wireArgument{Value: a.Value, Base: a.Base, Index: a.Index, Kind: uint8(a.Kind), Bytes: a.Bytes, Shift: a.Shift}
		if a.Signed {
			site[n].Signed = 1
		}
	}
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, site) // fails for types without a size only
	return b.Bytes()
}
