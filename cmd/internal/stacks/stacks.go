// SPDX-License-Identifier: Apache-2.0

// Package stacks reads where the threads of Python processes are now, by a run of the
// gadget py_stack inside another gadget's run.
package stacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"github.com/sirupsen/logrus"

	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/mapiter"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/pystack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
)

const (
	gadget = "py_stack"
	// after the operator that names stacks.
	subscription = 10000
)

// Runtime runs gadgets.
type Runtime interface {
	RunGadget(runtime.GadgetContext, *params.Params, api.ParamValues) error
}

// quiet discards messages of a run that no user has requested; errors are returned.
func quiet() logger.Logger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

// needed are the operators that a dump needs: not those for containers or exports.
var needed = []string{"oci", "ebpf", mapiter.Name, pystack.Name, "symbolize"}

// New returns the ranks.Dumper that runs the py_stack inside of the runtime.
func New(rt Runtime) ranks.Dumper {
	return func(ctx context.Context, _ string, pids []uint32) (map[ranks.Thread]ranks.Trace, error) {
		return dump(ctx, rt, gadget, pids)
	}
}

// NewBeside is for programs without embedded images: it runs the py_stack that has the
// registry and tag of the calling gadget's image.
func NewBeside(rt Runtime) ranks.Dumper {
	return func(ctx context.Context, asking string, pids []uint32) (map[ranks.Thread]ranks.Trace, error) {
		image, ok := Beside(asking)
		if !ok {
			return nil, fmt.Errorf("%s was started by digest: the matching %s is unknown", asking, gadget)
		}
		return dump(ctx, rt, image, pids)
	}
}

// Beside returns the image of py_stack with the repository and tag of another gadget's;
// false if that has a digest, which does not identify others.
func Beside(image string) (string, bool) {
	if image == "" || strings.Contains(image, "@") {
		return "", false
	}
	at := strings.LastIndexByte(image, '/') + 1
	_, tag, isTagged := strings.Cut(image[at:], ":")
	if isTagged {
		return image[:at] + gadget + ":" + tag, true
	}
	return image[:at] + gadget, true
}

func dump(ctx context.Context, rt Runtime, image string, pids []uint32) (map[ranks.Thread]ranks.Trace, error) {
	var ops []operators.DataOperator
	all := operators.GetDataOperators()
	for _, name := range needed {
		operator, ok := all[name]
		if !ok {
			return nil, fmt.Errorf("operator %s is not registered", name)
		}
		ops = append(ops, operator)
	}
	var mu sync.Mutex
	out := map[ranks.Thread]ranks.Trace{}
	ops = append(ops, simple.New("stacks", simple.WithPriority(subscription), simple.OnPreStart(func(gc operators.GadgetContext) error {
		ds := gc.GetDataSources()[pystack.DataSource]
		if ds == nil {
			return errors.New("py_stack has no data source " + pystack.DataSource)
		}
		read, err := bind(gc, ds)
		if err != nil {
			return err
		}
		return ds.SubscribeArray(func(_ datasource.DataSource, rows datasource.DataArray) error {
			mu.Lock()
			defer mu.Unlock()
			for n := range rows.Len() {
				if err := read(rows.Get(n), out); err != nil {
					return err
				}
			}
			return nil
		}, subscription)
	})))
	texts := make([]string, len(pids))
	for n, pid := range pids {
		texts[n] = strconv.FormatUint(uint64(pid), 10)
	}
	err := rt.RunGadget(gadgetcontext.New(ctx, image, gadgetcontext.WithDataOperators(ops...), gadgetcontext.WithLogger(quiet())), nil, api.ParamValues{
		"operator.pystack.mode":   "dump",
		"operator.pystack.format": "rows",
		"operator.pystack.pid":    strings.Join(texts, ","),
	})
	mu.Lock()
	defer mu.Unlock()
	if errors.Is(err, pystack.ErrNoPython) {
		return nil, nil // ranks in other languages have no line
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", image, err)
	}
	return out, nil
}

// bind finds the fields of a dump. The function that it returns adds a row to the traces,
// if it has frames.
func bind(gc operators.GadgetContext, ds datasource.DataSource) (func(datasource.Data, map[ranks.Thread]ranks.Trace) error, error) {
	fields := make([]datasource.FieldAccessor, 0, 6)
	for _, name := range []string{"proc.pid", "proc.tid", "process", "stack_id", "syscall", "gil"} {
		f := ds.GetField(name)
		if f == nil {
			return nil, fmt.Errorf("py_stack's %s have no field %s", pystack.DataSource, name)
		}
		fields = append(fields, f)
	}
	named, ok := symbolize.FromContext(gc)
	if !ok {
		return nil, errors.New("the operator symbolize is not active")
	}
	return func(d datasource.Data, to map[ranks.Thread]ranks.Trace) error {
		pid, err1 := fields[0].Uint32(d)
		tid, err2 := fields[1].Uint32(d)
		process, err3 := fields[2].Uint64(d)
		id, err4 := fields[3].Uint64(d)
		syscall, err5 := fields[4].String(d)
		gil, err6 := fields[5].String(d)
		if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil || id == 0 {
			return err
		}
		to[ranks.Thread{PID: pid, TID: tid}] = ranks.Trace{
			// Names are shared, and the calling run has its own libraries.
			Stack: slices.Clone(named.Stack(process, pid, id).Stack), Syscall: syscall, WaitsForGIL: gil == "waiting",
		}
		return nil
	}, nil
}
