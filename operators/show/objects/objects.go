// SPDX-License-Identifier: Apache-2.0

// Package objects is the Inspektor Gadget operator that prints rows as JSON, one object
// per line: what `-o json` asks of a local run. Where several data sources are printed,
// each object says in "type" which one it is of; a row of a table says in "time" when the
// table was read, which all rows of that reading have in common. Inspektor Gadget's own
// JSON has tables as arrays, and no type, so that a stream of it has as many shapes as
// there are data sources.
//
// The program takes "json" out of what it hands to Inspektor Gadget (Split) and gives it
// to this operator in the context's variable Var.
package objects

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource/formatters/json"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	clioperator "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cli"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/params"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

const (
	// Var has the data sources to print, as Split returns them.
	Var = "gpu-gadgets.objects"
	// Every of Var: all data sources that are shown by default.
	Every = "*"

	name = "objects"
)

// Split divides the value of --output ("json", or "allocs:json,ooms:columns") between
// Inspektor Gadget and this operator. modes are what data sources have by default; nil: not
// known. A data source that is not shown by default is shown only if it is named, and one
// that is not named beside one in JSON is not shown: it would be in the same stream.
func Split(output string, modes map[string]string) (cli, objects string) {
	asked := map[string]string{}
	for part := range strings.SplitSeq(output, ",") {
		source, mode, found := strings.Cut(part, ":")
		if !found {
			source, mode = "", part
		}
		if part != "" {
			asked[source] = mode
		}
	}
	all, isAll := asked[""]
	if isAll && len(modes) == 0 {
		if all == clioperator.ModeJSON {
			return clioperator.ModeNone, Every
		}
		return output, ""
	}
	hasJSON := slices.Contains(slices.Collect(maps.Values(asked)), clioperator.ModeJSON)
	for source, usual := range modes {
		switch mode, named := asked[source]; {
		case named:
		case isAll && usual == clioperator.ModeNone:
			asked[source] = usual
		case isAll:
			asked[source] = all
		case hasJSON && mode == "":
			asked[source] = clioperator.ModeNone
		}
	}
	delete(asked, "")
	var forCLI, forUs []string
	for _, source := range slices.Sorted(maps.Keys(asked)) {
		mode := asked[source]
		if mode == clioperator.ModeJSON {
			forUs = append(forUs, source)
			mode = clioperator.ModeNone
		}
		forCLI = append(forCLI, source+":"+mode)
	}
	return strings.Join(forCLI, ","), strings.Join(forUs, ",")
}

// Operator is to be registered once per process.
type Operator struct{ to io.Writer }

// New returns the operator, which writes to standard output if to is nil.
func New(to io.Writer) *Operator {
	if to == nil {
		to = os.Stdout
	}
	return &Operator{to}
}

// Name implements operators.DataOperator.
func (*Operator) Name() string { return name }

// Init implements operators.DataOperator.
func (*Operator) Init(*params.Params) error { return nil }

// GlobalParams implements operators.DataOperator.
func (*Operator) GlobalParams() api.Params { return nil }

// InstanceParams implements operators.DataOperator.
func (*Operator) InstanceParams() api.Params { return burstParams() }

// Priority implements operators.DataOperator: with what prints.
func (*Operator) Priority() int { return clioperator.Priority }

// InstantiateDataOperator takes part in local runs, also where nothing is to be printed: what to print is not known yet when
// a program asks which flags there are.
func (o *Operator) InstantiateDataOperator(gc operators.GadgetContext, values api.ParamValues) (operators.DataOperatorInstance, error) {
	value, _ := gc.GetVar(Var)
	sources, _ := value.(string)
	if gc.IsRemoteCall() {
		return nil, nil
	}
	limit, err := newLimit(values[paramBurst])
	if err != nil {
		return nil, err
	}
	return &instance{to: o.to, sources: strings.Split(sources, ","), limit: limit}, nil
}

// instance is one run.
type instance struct {
	to      io.Writer
	sources []string
	limit   *limit
	log     logger.Logger

	mu     sync.Mutex
	failed error // the first one of writing, except that the reader has ended
	isTorn bool  // a line was written in part
}

// Name implements operators.DataOperatorInstance.
func (*instance) Name() string { return name }

// PreStart subscribes to the data sources; only now are all of them known.
func (i *instance) PreStart(gc operators.GadgetContext) error {
	i.log = gc.Logger()
	var printed []datasource.DataSource
	for _, ds := range gc.GetDataSources() {
		isShown := ds.Annotations()[clioperator.AnnotationDefaultOutputMode] != clioperator.ModeNone
		if slices.Contains(i.sources, ds.Name()) || slices.Contains(i.sources, Every) && isShown {
			printed = append(printed, ds)
		}
	}
	for _, ds := range printed {
		if err := i.subscribe(ds, len(printed) > 1); err != nil {
			return fmt.Errorf("print %s as JSON: %w", ds.Name(), err)
		}
	}
	return nil
}

func (i *instance) subscribe(ds datasource.DataSource, typed bool) error {
	formatter, err := json.New(ds, json.WithShowAll(true))
	if err != nil {
		return err
	}
	lead := ""
	if typed {
		key := "type"
		if ds.GetField(key) != nil { // it has one of its own, such as that of a collective's numbers
			key = "source"
		}
		lead = strconv.Quote(key) + ":" + strconv.Quote(ds.Name())
	}
	if ds.Type() != datasource.TypeArray {
		return ds.Subscribe(i.event(ds, lead, formatter.Marshal), clioperator.Priority)
	}
	return ds.SubscribeArray(func(_ datasource.DataSource, rows datasource.DataArray) error {
		at := `"time":` + strconv.Quote(time.Now().Format(time.RFC3339Nano))
		if lead != "" {
			at = lead + "," + at
		}
		objects := make([][]byte, rows.Len())
		for n := range objects {
			objects[n] = slices.Clone(formatter.Marshal(rows.Get(n)))
		}
		i.write(at, objects)
		return nil
	}, clioperator.Priority)
}

// event prints a row of an event, unless its container has had too many.
func (i *instance) event(ds datasource.DataSource, lead string, marshal func(datasource.Data) []byte) datasource.DataFunc {
	tenant := func(datasource.Data) uint64 { return 0 }
	if fields := ds.GetFieldsWithTag(ig.TagMountNS); len(fields) > 0 {
		tenant = func(row datasource.Data) uint64 {
			n, _ := fields[0].Uint64(row)
			return n
		}
	}
	return func(_ datasource.DataSource, row datasource.Data) error {
		leftOut, ok := i.limit.pass(tenant(row), time.Now())
		if !ok {
			return nil
		}
		first := lead
		if leftOut > 0 {
			first = strings.TrimPrefix(fmt.Sprintf(`%s,"left_out":%d`, lead, leftOut), ",")
		}
		i.write(first, [][]byte{marshal(row)})
		return nil
	}
}

// write prints objects with further members at their beginning. The first failure is a
// warning, and PostStop returns it.
func (i *instance) write(lead string, objects [][]byte) {
	var out bytes.Buffer
	for _, object := range objects {
		if rest, ok := bytes.CutPrefix(object, []byte("{")); ok && lead != "" {
			out.WriteString("{" + lead)
			if !bytes.Equal(rest, []byte("}")) {
				out.WriteByte(',')
			}
			object = rest
		}
		out.Write(object)
		out.WriteByte('\n')
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.print(out.Bytes()); err != nil && i.failed == nil && !errors.Is(err, unix.EPIPE) {
		i.failed = err
		i.log.Warnf("print rows as JSON: %v: rows are missing in the output", err)
	}
}

// print writes lines. After a line of which only a part was written, as on a full disk, they
// begin on a new one: only the torn one is no object. Called with i.mu held.
func (i *instance) print(lines []byte) error {
	if i.isTorn {
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := i.to.Write(lines)
	if n > 0 {
		i.isTorn = lines[n-1] != '\n'
	}
	return err
}

func (*instance) Start(operators.GadgetContext) error { return nil }

// Stop implements operators.DataOperatorInstance.
func (i *instance) Stop(operators.GadgetContext) error {
	if n := i.limit.rest(); n > 0 {
		i.write("", [][]byte{fmt.Appendf(nil, `{"left_out":%d}`, n)})
	}
	return nil
}

// PostStop implements operators.PostStop: only now have the last rows come. That what read
// the rows has ended, as head does, is no error: it ends the run, by SIGPIPE.
func (i *instance) PostStop(operators.GadgetContext) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failed != nil {
		return fmt.Errorf("print rows as JSON: %w", i.failed)
	}
	return nil
}

func (*instance) Close(operators.GadgetContext) error { return nil }
