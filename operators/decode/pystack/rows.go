// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// DataSource has a row for each thread of a dump.
const DataSource = "threads"

// annotationOutput sets how the command line shows a data source.
const annotationOutput = "cli.default-output-mode"

// annotationLast makes ig read an iterator once more when the run ends.
const annotationLast = "ebpf.iter.fetch-on-stop"

// rows is the data source with its fields. The operator symbolize adds the names
// of the stack, because it finds process, stack_id and proc.pid.
type rows struct {
	ds                       datasource.DataSource
	mntns, process, stackID  datasource.FieldAccessor
	pid, tid, comm, thread   datasource.FieldAccessor
	state, call, gil, python datasource.FieldAccessor
	wchan, moved, role       datasource.FieldAccessor
}

// registry is the part of operators.GadgetContext that newRows uses.
type registry interface {
	RegisterDataSource(datasource.Type, string) (datasource.DataSource, error)
}

// newRows registers the data source: in Instantiate. A quiet one is for
// programs only.
func newRows(gc registry, quiet bool) (*rows, error) {
	ds, err := gc.RegisterDataSource(datasource.TypeArray, DataSource)
	if err != nil {
		return nil, err
	}
	if quiet {
		ds.AddAnnotation(annotationOutput, "none")
	}
	r := &rows{ds: ds}
	note := func(width, description string, hidden bool) datasource.FieldOption {
		annotations := map[string]string{"description": description, "columns.width": width}
		if hidden {
			annotations["columns.hidden"] = "true"
		}
		return datasource.WithAnnotations(annotations)
	}
	// The tag makes the container managers add the container's fields.
	r.mntns, err = ds.AddField("mntns_id", api.Kind_Uint64, datasource.WithTags(ig.TagMountNS), datasource.WithFlags(datasource.FieldFlagHidden))
	if err != nil {
		return nil, err
	}
	proc, err := ds.AddField("proc", api.Kind_Invalid, datasource.WithFlags(datasource.FieldFlagEmpty))
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		to     *datasource.FieldAccessor
		parent datasource.FieldAccessor
		name   string
		kind   api.Kind
		option datasource.FieldOption
	}{
		{&r.comm, proc, "comm", api.Kind_String, note("16", "Name of the process", false)},
		{&r.pid, proc, "pid", api.Kind_Uint32, note("7", "Process", false)},
		{&r.tid, proc, "tid", api.Kind_Uint32, note("7", "Thread", false)},
		{&r.thread, nil, "thread", api.Kind_String, note("16", "Name of the thread", false)},
		{&r.role, nil, "role", api.Kind_String, note("40", "What the thread does, of those that PyTorch names, and of workers of torch.compile and Ray", true)},
		{&r.state, nil, "state", api.Kind_String, note("8", "running, runnable, sleeping, blocked (signals do not wake it) or stopped", false)},
		{&r.call, nil, "syscall", api.Kind_String, note("12", "System call that it sleeps in", false)},
		{&r.wchan, nil, "wchan", api.Kind_String, note("20", "Kernel function in which it sleeps", false)},
		{&r.gil, nil, "gil", api.Kind_String, note("8", "held, waiting (for it), not held, or unknown (3.14 and later, free-threaded)", false)},
		{&r.python, nil, "python", api.Kind_String, note("8", "Version of the interpreter", true)},
		{&r.moved, nil, "moved", api.Kind_Bool, note("5", "It ran while its stack was read: frames may be of different moments", true)},
		{&r.process, nil, "process", api.Kind_Uint64, note("20", "Id of the process, unlike its pid never reused", true)},
		{&r.stackID, nil, "stack_id", api.Kind_Uint64, note("20", "Id of the stack within this run, 0: no Python frames", true)},
	} {
		if f.parent != nil {
			*f.to, err = f.parent.AddSubField(f.name, f.kind, f.option)
		} else {
			*f.to, err = ds.AddField(f.name, f.kind, f.option)
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// containerFields identify the container of a row; the container managers add them.
var containerFields = []string{"k8s.namespace", "k8s.podName", "k8s.containerName"}

// enriched is a subscription after the container managers' (0), before that of
// the operator that names frames.
const enriched = 10

// containers emits the rows to have their containers filled in, and returns the
// container's name of each process: namespace/pod/container, or the runtime's name. Call
// it once, from Start on, when the fields exist.
func (r *rows) containers(threads []thread) (map[uint64]string, error) {
	names := map[uint64]string{}
	err := r.ds.SubscribeArray(func(_ datasource.DataSource, packet datasource.DataArray) error {
		for n := range packet.Len() {
			row := packet.Get(n)
			id, err := r.process.Uint64(row)
			if err != nil {
				return err
			}
			if name := r.container(row); name != "" {
				names[id] = name
			}
		}
		return datasource.ErrDiscard
	}, enriched)
	if err != nil {
		return nil, err
	}
	return names, r.emit(threads)
}

func (r *rows) container(row datasource.Data) string {
	value := func(field string) string {
		accessor := r.ds.GetField(field)
		if accessor == nil {
			return ""
		}
		text, _ := accessor.String(row) // a field of another type is not one of theirs
		return text
	}
	var parts []string
	for _, field := range containerFields {
		if part := value(field); part != "" {
			parts = append(parts, part)
		}
	}
	if parts == nil {
		return value("runtime.containerName")
	}
	return strings.Join(parts, "/")
}

func (r *rows) emit(threads []thread) error {
	packet, err := r.ds.NewPacketArray()
	if err != nil {
		return err
	}
	for n := range threads {
		row := packet.New()
		if err := r.put(row, &threads[n]); err != nil {
			packet.Release(row)
			r.ds.Release(packet)
			return err
		}
		packet.Append(row)
	}
	return r.ds.EmitAndRelease(packet)
}

func (r *rows) put(row datasource.Data, t *thread) error {
	for _, n := range []struct {
		to    datasource.FieldAccessor
		value uint64
	}{{r.mntns, t.MountNS}, {r.process, t.Process}, {r.stackID, t.StackID}} {
		if err := n.to.PutUint64(row, n.value); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		to    datasource.FieldAccessor
		value uint32
	}{{r.pid, t.PID}, {r.tid, t.TID}} {
		if err := n.to.PutUint32(row, n.value); err != nil {
			return err
		}
	}
	for _, s := range []struct {
		to    datasource.FieldAccessor
		value string
	}{{r.comm, t.processComm}, {r.thread, t.comm}, {r.role, t.role}, {r.state, t.state()}, {r.call, t.syscall()}, {r.wchan, t.wchan},
		{r.gil, t.gil()}, {r.python, t.version()}} {
		if err := s.to.PutString(row, s.value); err != nil {
			return err
		}
	}
	return r.moved.PutBool(row, t.Moved != 0)
}
