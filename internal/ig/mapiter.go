// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/mapiter"
)

// Names of variables in a gadget's object: GADGET_ITER and GADGET_ITER_TARGET_MAP of
// include/gadget/macros.h.
const (
	iterPrefix      = "gadget_iter_"
	targetMapPrefix = "gadget_mapelem_iter_target_"
	nameSplitter    = "___"
)

// MapIterator is a program that turns the entries of a map into rows of a data source.
type MapIterator struct {
	Source, Map string
	size        int // of a row, in bytes
	program     *mapiter.Program
}

// TakeMapIterators removes the programs of section iter/bpf_map_elem from a gadget and
// returns them, so that it loads on kernels that refuse them (mapiter.Refused). Inspektor
// Gadget continues to emit their data sources at each interval, without rows. Call it in
// Instantiate, in operators with a priority above -1000, before OnContainers.
func TakeMapIterators(gc Context) ([]MapIterator, error) {
	spec, err := specOf(gc)
	if err != nil {
		return nil, err
	}
	sources, targets, sizes := map[string]string{}, map[string]string{}, map[string]int{} // by program
	for typ, err := range spec.Types.All() {
		if err != nil {
			return nil, fmt.Errorf("read the gadget's types: %w", err)
		}
		v, ok := typ.(*btf.Var)
		if !ok {
			continue
		}
		if rest, ok := strings.CutPrefix(v.Name, iterPrefix); ok {
			parts := strings.Split(rest, nameSplitter)
			if len(parts) < 3 {
				continue
			}
			var row *btf.Struct
			if err := spec.Types.TypeByName(parts[1], &row); err != nil {
				return nil, fmt.Errorf("struct %s of data source %s: %w", parts[1], parts[0], err)
			}
			for _, program := range parts[2:] {
				sources[program], sizes[program] = parts[0], int(row.Size)
			}
		}
		if rest, ok := strings.CutPrefix(v.Name, targetMapPrefix); ok {
			if program, target, ok := strings.Cut(rest, nameSplitter); ok {
				targets[program] = target
			}
		}
	}
	var all []MapIterator
	for name, program := range mapiter.Take(spec) {
		if sources[name] == "" || targets[name] == "" {
			return nil, fmt.Errorf("program %s: no data source or no map: %w", name, ErrAbsent)
		}
		if err := Skip(gc, name); err != nil {
			return nil, fmt.Errorf("keep ig from attaching %s: %w", name, err)
		}
		all = append(all, MapIterator{Source: sources[name], Map: targets[name], size: sizes[name], program: program})
	}
	return all, nil
}

// Append reads the map and appends its rows to the data source's packet. From Start on.
func (i MapIterator) Append(gc Context, ds datasource.DataSource, to datasource.DataArray) error {
	target, err := Map(gc, i.Map)
	if err != nil {
		return err
	}
	rows, err := i.program.Rows(target, func(name string) (*ebpf.Map, error) { return Map(gc, name) }, mapiter.Entries)
	if err != nil {
		return err
	}
	if i.size == 0 || len(rows)%i.size != 0 {
		return fmt.Errorf("%d bytes of rows for data source %s, not a multiple of %d", len(rows), i.Source, i.size)
	}
	for ; len(rows) > 0; rows = rows[i.size:] {
		if err := appendRow(ds, to, rows[:i.size]); err != nil {
			return err
		}
	}
	return nil
}

// specOf is the specification that Inspektor Gadget will load.
func specOf(gc Context) (*ebpf.CollectionSpec, error) {
	v, ok := gc.GetVar(VarInstance)
	if !ok {
		return nil, fmt.Errorf("eBPF instance: %w", ErrAbsent)
	}
	instance := reflect.ValueOf(v)
	if instance.Kind() != reflect.Pointer || instance.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("eBPF instance: unexpected type %T", v)
	}
	field := instance.Elem().FieldByName("collectionSpec")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*ebpf.CollectionSpec]() {
		return nil, fmt.Errorf("eBPF instance: %T has no collection specification", v)
	}
	return (*ebpf.CollectionSpec)(field.UnsafePointer()), nil
}
