// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

// DataSource has a row for every change of a library in a process.
const DataSource = "attachments"

// rows is the data source with its fields.
type rows struct {
	ds    datasource.DataSource
	mntns datasource.FieldAccessor
	pid   datasource.FieldAccessor
	text  []textField
	num   []numField
}

type textField struct {
	field datasource.FieldAccessor
	value func(*tracer.Attachment) string
}

type numField struct {
	field datasource.FieldAccessor
	value func(*tracer.Attachment) int
}

// newRows registers the data source: in Instantiate.
func newRows(gc operators.GadgetContext) (*rows, error) {
	ds, err := gc.RegisterDataSource(datasource.TypeSingle, DataSource)
	if err != nil {
		return nil, err
	}
	r := &rows{ds: ds}
	add := func(name string, kind api.Kind, width, description string, more ...datasource.FieldOption) datasource.FieldAccessor {
		more = append(more, datasource.WithAnnotations(map[string]string{
			"description": description, "columns.width": width,
		}))
		f, e := ds.AddField(name, kind, more...)
		if e != nil && err == nil {
			err = e
		}
		return f
	}
	text := func(name, width, description string, value func(*tracer.Attachment) string) {
		r.text = append(r.text, textField{add(name, api.Kind_String, width, description), value})
	}
	number := func(name, description string, value func(*tracer.Attachment) int) {
		r.num = append(r.num, numField{add(name, api.Kind_Uint32, "7", description), value})
	}
	// The tag makes the container managers add the container's fields.
	r.mntns = add("mntns_id", api.Kind_Uint64, "12", "Mount namespace of the process",
		datasource.WithTags(ig.TagMountNS), datasource.WithFlags(datasource.FieldFlagHidden))
	r.pid = add("pid", api.Kind_Uint32, "7", "Process, as the host numbers it")
	text("comm", "16", "Command name", func(a *tracer.Attachment) string { return a.Comm })
	text("status", "15", "attached, gone, or why it is not attached",
		func(a *tracer.Attachment) string { return string(a.Status) })
	number("symbols", "Functions probed", func(a *tracer.Attachment) int { return a.Symbols })
	number("wanted", "Functions that the gadget asks for", func(a *tracer.Attachment) int { return a.Wanted })
	text("mode", "5", "multi (uprobe_multi) or perf", func(a *tracer.Attachment) string { return string(a.Mode) })
	text("note", "16", "Offset from the function's entry: how many probes",
		func(a *tracer.Attachment) string { return a.Note })
	text("path", "48", "Library, as the process sees it", func(a *tracer.Attachment) string { return a.Path })
	text("build_id", "40", "GNU build id of the library", func(a *tracer.Attachment) string { return a.BuildID })
	text("error", "32", "What went wrong", func(a *tracer.Attachment) string { return a.Error })
	return r, err
}

func (r *rows) emit(a tracer.Attachment) error {
	p, err := r.ds.NewPacketSingle()
	if err != nil {
		return err
	}
	if err := r.mntns.PutUint64(p, a.MountNS); err != nil {
		return err
	}
	if err := r.pid.PutUint32(p, a.PID); err != nil {
		return err
	}
	for _, f := range r.text {
		if err := f.field.PutString(p, f.value(&a)); err != nil {
			return err
		}
	}
	for _, f := range r.num {
		if err := f.field.PutUint32(p, uint32(f.value(&a))); err != nil {
			return err
		}
	}
	return r.ds.EmitAndRelease(p)
}
