// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/symbols"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/rows"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

// samplesGadget emits two tables of one row, of 1 sample and then of 3, and ends the run.
func samplesGadget(t *testing.T) operators.DataOperator {
	var ds datasource.DataSource
	fields := map[string]datasource.FieldAccessor{}
	return simple.New("gadget",
		simple.WithPriority(-100),
		simple.OnInit(func(gc operators.GadgetContext) error {
			var err error
			if ds, err = gc.RegisterDataSource(datasource.TypeArray, "samples"); err != nil {
				return err
			}
			ds.AddAnnotation(rows.AnnotationSubject, "cpu")
			ds.AddAnnotation(rows.AnnotationPeriod, "10ms")
			proc, err := ds.AddField("proc", api.Kind_Invalid, datasource.WithFlags(datasource.FieldFlagEmpty))
			if err != nil {
				return err
			}
			var errs []error
			if fields["pid"], err = proc.AddSubField("pid", api.Kind_Uint32); err != nil {
				return err
			}
			for _, name := range []string{"process", "stack_id", "samples", "gil_samples"} {
				fields[name], err = ds.AddField(name, api.Kind_Uint64)
				errs = append(errs, err)
			}
			fields["tid"], err = ds.AddField("tid", api.Kind_Uint32)
			return errors.Join(append(errs, err)...)
		}),
		simple.OnStart(func(gc operators.GadgetContext) error {
			go func() {
				defer gc.Cancel()
				for _, count := range []uint64{1, 3} {
					packet, err := ds.NewPacketArray()
					if err != nil {
						t.Error(err)
						return
					}
					row := packet.New()
					err = errors.Join(fields["pid"].PutUint32(row, 42), fields["tid"].PutUint32(row, 43),
						fields["process"].PutUint64(row, 7), fields["stack_id"].PutUint64(row, 0),
						fields["samples"].PutUint64(row, count), fields["gil_samples"].PutUint64(row, 1))
					packet.Append(row)
					if err = errors.Join(err, ds.EmitAndRelease(packet)); err != nil {
						t.Error(err)
					}
				}
			}()
			return nil
		}),
	)
}

// TestSamplesAreAProfileOfTime: rows of samples become a CPU profile, with the
// time that the annotated period gives them, and lines of their own kind.
func TestSamplesAreAProfileOfTime(t *testing.T) {
	dir := t.TempDir()
	pprofFile, lines, html := filepath.Join(dir, "p"), filepath.Join(dir, "j"), filepath.Join(dir, "f")

	maps := procmaps.NewCache(procmaps.Config{ProcFS: t.TempDir()})
	gc := gadgetcontext.New(context.Background(), "", gadgetcontext.WithDataOperators(
		samplesGadget(t), symbolize.New(symbols.NewResolver(maps)), New(Config{})))
	require.NoError(t, gc.Run(api.ParamValues{
		"operator.sink." + paramPprof: pprofFile,
		"operator.sink." + paramJSONL: lines,
		"operator.sink." + paramFlame: html,
	}))

	b, err := os.ReadFile(pprofFile)
	require.NoError(t, err)
	p, err := pprof.Decode(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, profile.CPU, p.Subject)
	require.Len(t, p.Rows, 1)
	require.Equal(t, profile.Values{Samples: 3, Nanoseconds: 30_000_000}, p.Rows[0].Values)
	require.EqualValues(t, 43, p.Rows[0].Thread)

	b, err = os.ReadFile(lines)
	require.NoError(t, err)
	got := strings.Split(strings.TrimSpace(string(b)), "\n")
	require.Len(t, got, 2)
	require.Contains(t, got[0], `"type":"sample"`)
	require.Contains(t, got[1], `"tid":43,"samples":3,"gil_samples":1,`)

	b, err = os.ReadFile(html)
	require.NoError(t, err)
	require.Contains(t, string(b), `"types":["samples","cpu"]`)
}

// TestTheLastLineOfARowIsItsState: stacks that differ in addresses alone have the same names, and their rows add up all the same.
func TestTheLastLineOfARowIsItsState(t *testing.T) {
	lines := filepath.Join(t.TempDir(), "rows.jsonl")
	g := &gadget{intervals: [][]row{
		{{1, 101, 100, 0, 0}, {1, 102, 50, 0, 0}, {2, 101, 7, 0, 0}},
		{{1, 101, 130, 10, 0}, {1, 102, 50, 0, 0}, {2, 101, 7, 0, 0}},
		{{2, 101, 7, 0, 0}}, // process 1 is gone
	}}
	require.NoError(t, g.run(t, api.ParamValues{"jsonl-out": lines}))
	text, err := os.ReadFile(lines)
	require.NoError(t, err)
	type line struct {
		Row, Process string
		Stack        []struct{ Function string }
		Alloc        int64 `json:"alloc_bytes"`
		Inuse        int64 `json:"inuse_bytes"`
	}
	state, written := map[string]line{}, 0
	for text := range strings.Lines(string(text)) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		require.Len(t, l.Row, 16)
		require.Equal(t, "[unknown]", l.Stack[0].Function)
		state[l.Row] = l
		written++
	}
	require.Len(t, state, 3)
	require.Equal(t, 3+1+2, written)
	alloc, inuse := map[string]int64{}, map[string]int64{}
	for _, l := range state {
		alloc[l.Process] += l.Alloc
		inuse[l.Process] += l.Inuse
	}
	require.Equal(t, map[string]int64{"0000000000000001": 180, "0000000000000002": 7}, alloc)
	require.Equal(t, map[string]int64{"0000000000000001": 0, "0000000000000002": 7}, inuse)
}
