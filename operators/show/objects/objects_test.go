// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	clioperator "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/cli"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestJSONIsTakenOutOfWhatInspektorGadgetPrints(t *testing.T) {
	modes := map[string]string{"allocs": "columns", "ooms": "columns", "call_events": "none"}
	for _, c := range []struct {
		output       string
		modes        map[string]string
		cli, objects string
	}{
		{"json", nil, "none", "*"},
		{"columns", nil, "columns", ""},
		{"", nil, "", ""},
		{"json", modes, "allocs:none,call_events:none,ooms:none", "allocs,ooms"},
		{"columns", modes, "allocs:columns,call_events:none,ooms:columns", ""},
		{"yaml", modes, "allocs:yaml,call_events:none,ooms:yaml", ""},
		{"allocs:json", modes, "allocs:none,call_events:none,ooms:none", "allocs"},
		{"call_events:json", modes, "allocs:none,call_events:none,ooms:none", "call_events"},
		{"allocs:json,ooms:columns", modes, "allocs:none,call_events:none,ooms:columns", "allocs"},
		{"allocs:none", modes, "allocs:none", ""}, // the others as they are by default
		{"allocs:columns,ooms:columns,call_events:none", modes, "allocs:columns,call_events:none,ooms:columns", ""},
	} {
		cli, objects := Split(c.output, c.modes)
		require.Equal(t, [2]string{c.cli, c.objects}, [2]string{cli, objects}, c.output)
	}
}

// emit runs a gadget with a table and an event, printed as sources say.
func emit(t *testing.T, sources string) (lines []map[string]any) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, emitTo(t, sources, &out))
	for line := range strings.Lines(out.String()) {
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &object), line)
		lines = append(lines, object)
	}
	return lines
}

func emitTo(t *testing.T, sources string, to io.Writer) error {
	t.Helper()
	var table, event, hidden datasource.DataSource
	var n, m, h datasource.FieldAccessor
	gadget := simple.New("gadget", simple.WithPriority(-100), simple.OnInit(func(gc operators.GadgetContext) (err error) {
		register := func(kind datasource.Type, name, field string) (datasource.DataSource, datasource.FieldAccessor) {
			ds, e := gc.RegisterDataSource(kind, name)
			require.NoError(t, e)
			f, e := ds.AddField(field, api.Kind_Uint32)
			require.NoError(t, e)
			return ds, f
		}
		table, n = register(datasource.TypeArray, "allocs", "n")
		event, m = register(datasource.TypeSingle, "ooms", "type")
		hidden, h = register(datasource.TypeSingle, "call_events", "h")
		hidden.AddAnnotation(clioperator.AnnotationDefaultOutputMode, clioperator.ModeNone)
		return nil
	}), simple.OnStart(func(gc operators.GadgetContext) error {
		go func() {
			defer gc.Cancel()
			rows, err := table.NewPacketArray()
			if err != nil {
				t.Error(err)
				return
			}
			for value := range uint32(2) {
				row := rows.New()
				_ = n.PutUint32(row, value)
				rows.Append(row)
			}
			_ = table.EmitAndRelease(rows)
			for ds, f := range map[datasource.DataSource]datasource.FieldAccessor{event: m, hidden: h} {
				row, err := ds.NewPacketSingle()
				if err != nil {
					t.Error(err)
					return
				}
				_ = f.PutUint32(row, 7)
				_ = ds.EmitAndRelease(row)
			}
		}()
		return nil
	}))
	gc := gadgetcontext.New(context.Background(), "", gadgetcontext.WithDataOperators(gadget, New(to)))
	gc.SetVar(Var, sources)
	return gc.Run(api.ParamValues{})
}

// disk writes as many bytes as there is room for, of each write.
type disk struct {
	bytes.Buffer
	room []int // of the first writes; later ones have enough
	err  error
}

func (d *disk) Write(b []byte) (int, error) {
	if len(d.room) > 0 {
		n := d.room[0]
		d.room = d.room[1:]
		_, _ = d.Buffer.Write(b[:n])
		return n, d.err
	}
	return d.Buffer.Write(b)
}

func TestRowsThatCannotBePrintedAreAnError(t *testing.T) {
	full := &disk{room: []int{5}, err: unix.ENOSPC}
	err := emitTo(t, "allocs,ooms", full)
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "print rows as JSON: no space left on device")
	require.Equal(t, "{\"typ\n{\"source\":\"ooms\",\"type\":7}\n", full.String(), "no row shares a line with one that is torn")

	require.NoError(t, emitTo(t, Every, &disk{room: []int{0, 0, 0}, err: unix.EPIPE}), "head has read enough")
}

func TestEachRowIsAnObjectWithItsType(t *testing.T) {
	lines := emit(t, Every)
	require.Len(t, lines, 3, "call_events are printed only where they are asked for")
	for _, l := range lines[:2] {
		require.Equal(t, "allocs", l["type"])
		require.Equal(t, lines[0]["time"], l["time"], "rows of one reading")
	}
	require.EqualValues(t, 1, lines[1]["n"])
	require.Equal(t, map[string]any{"source": "ooms", "type": float64(7)}, lines[2])
}

func TestOneDataSourceHasOneShapeAndNoType(t *testing.T) {
	lines := emit(t, "call_events")
	require.Equal(t, []map[string]any{{"h": float64(7)}}, lines)
	require.Empty(t, emit(t, ""))
}
