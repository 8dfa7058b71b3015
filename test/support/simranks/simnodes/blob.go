// SPDX-License-Identifier: Apache-2.0

package simnodes

import (
	"encoding/binary"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"google.golang.org/protobuf/proto"
)

// table is a data source whose rows have a part of fixed size, as a struct of a gadget, and texts
// that operators add.
type table struct {
	ds     datasource.DataSource
	id     uint32 // as packets name it
	size   int    // of the fixed part
	offset map[string]int
	texts  map[string]int // their payloads' numbers
}

// field of the fixed part.
type field struct {
	name   string
	kind   api.Kind
	size   int
	offset int
}

// FieldName implements datasource.StaticField.
func (f field) FieldName() string { return f.name }

// FieldSize implements datasource.StaticField.
func (f field) FieldSize() uint32 { return uint32(f.size) }

// FieldOffset implements datasource.StaticField.
func (f field) FieldOffset() uint32 { return uint32(f.offset) }

// FieldType implements datasource.TypedField.
func (f field) FieldType() api.Kind { return f.kind }

func u64(names ...string) (all []field) {
	for _, name := range names {
		all = append(all, field{name: name, kind: api.Kind_Uint64, size: 8})
	}
	return all
}

func u32(names ...string) (all []field) {
	for _, name := range names {
		all = append(all, field{name: name, kind: api.Kind_Uint32, size: 4})
	}
	return all
}

func i32(names ...string) (all []field) {
	for _, name := range names {
		all = append(all, field{name: name, kind: api.Kind_Int32, size: 4})
	}
	return all
}

func chars(name string, size int) field { return field{name: name, kind: api.Kind_CString, size: size} }

// newTable lays the fixed fields one behind the other. The fixed part has size bytes, or as many
// as they need.
func newTable(register func(datasource.Type, string) (datasource.DataSource, error), name string, size int, fixed []field, texts ...string) (*table, error) {
	t := &table{offset: map[string]int{}, texts: map[string]int{}}
	at := 0
	var static []datasource.StaticField
	for _, f := range fixed {
		f.offset, t.offset[f.name] = at, at
		at += f.size
		static = append(static, f)
	}
	t.size = max(size, at)
	var err error
	if t.ds, err = register(datasource.TypeArray, name); err != nil {
		return nil, err
	}
	if _, err = t.ds.AddStaticFields(uint32(t.size), static); err != nil {
		return nil, err
	}
	for i, name := range texts {
		if _, err = t.ds.AddField(name, api.Kind_String); err != nil {
			return nil, err
		}
		t.texts[name] = i + 1
	}
	return t, nil
}

// row is one of a packet.
type row struct {
	t    *table
	data *api.DataElement
	b    []byte // the fixed part
}

func (t *table) newRow() row {
	b := make([]byte, t.size)
	payload := make([][]byte, 1+len(t.texts))
	payload[0] = b
	return row{t, &api.DataElement{Payload: payload}, b}
}

func (r row) u64(name string, v uint64) { binary.NativeEndian.PutUint64(r.b[r.at(name):], v) }

func (r row) u32(name string, v uint32) { binary.NativeEndian.PutUint32(r.b[r.at(name):], v) }

func (r row) chars(name, v string) { copy(r.b[r.at(name):], v) }

func (r row) at(name string) int {
	at, ok := r.t.offset[name]
	if !ok {
		panic("no field " + name) // of this package's own tables
	}
	return at
}

func (r row) text(name, v string) { r.data.Payload[r.t.texts[name]] = []byte(v) }

// packet is an event with the rows.
func (t *table) packet(rows []*api.DataElement) (*api.GadgetEvent, error) {
	payload, err := proto.Marshal(&api.GadgetDataArray{DataArray: rows})
	if err != nil {
		return nil, err
	}
	return &api.GadgetEvent{Type: api.EventTypeGadgetPayload, DataSourceID: t.id, Payload: payload}, nil
}
