// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"testing"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"
	log "github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
)

// hanging simulates nccl_trace with operators/judge/ranks: two verdicts, the second when the
// run ends.
func hanging(t *testing.T, values api.ParamValues) error {
	t.Helper()
	var ds datasource.DataSource
	fields := map[string]datasource.FieldAccessor{}
	declare := func(gc operators.GadgetContext) (err error) {
		if ds, err = gc.RegisterDataSource(datasource.TypeSingle, hangs); err != nil {
			return err
		}
		proc, err := ds.AddField("proc", api.Kind_Invalid)
		if err != nil {
			return err
		}
		var errs []error
		if fields["pid"], err = proc.AddSubField("pid", api.Kind_Uint32); err != nil {
			return err
		}
		for name, kind := range map[string]api.Kind{"process": api.Kind_Uint64, "event": api.Kind_String, "reason": api.Kind_String, "text": api.Kind_String,
			"communicator": api.Kind_String, "operation": api.Kind_String, "seq": api.Kind_Uint64, "rank": api.Kind_Int32, "ranks": api.Kind_String,
			"waiting": api.Kind_String, "state": api.Kind_String, "stack": api.Kind_String, "waited_ns": api.Kind_Uint64, "size": api.Kind_Int32} {
			f, err := ds.AddField(name, kind)
			fields[name] = f
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	emit := func(event string) error {
		d, err := ds.NewPacketSingle()
		if err != nil {
			return err
		}
		return errors.Join(fields["pid"].PutUint32(d, 2202), fields["process"].PutUint64(d, 9), fields["event"].PutString(d, event),
			fields["reason"].PutString(d, "dead"), fields["text"].PutString(d, "rank 1 is stopped"), fields["seq"].PutUint64(d, 161),
			fields["ranks"].PutString(d, "1 3"), fields["rank"].PutInt32(d, 1), fields["waiting"].PutString(d, "0 2"), fields["waited_ns"].PutUint64(d, 5e9),
			fields["size"].PutInt32(d, 4), fields["stack"].PutString(d, "main (train.py:9); load (train.py:41)"), ds.EmitAndRelease(d))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	producer := simple.New("producer", simple.WithPriority(-1000), simple.OnInit(declare),
		simple.OnStop(func(operators.GadgetContext) error { return emit("cleared") }))
	emitter := simple.New("emitter", simple.WithPriority(20000), simple.OnStart(func(operators.GadgetContext) error {
		go func() {
			defer cancel()
			if err := emit("found"); err != nil {
				t.Error(err)
			}
		}()
		return nil
	}))
	prefixed := api.ParamValues{}
	for k, v := range values {
		prefixed["operator.export."+k] = v
	}
	return gadgetcontext.New(ctx, "", gadgetcontext.WithDataOperators(producer, New(Config{}), emitter)).Run(prefixed)
}

func TestVerdictsAreSentAsLogs(t *testing.T) {
	b := newBackend(t)
	b.withoutProfiles = true // which are not needed
	require.NoError(t, hanging(t, api.ParamValues{paramOTLP: b.URL, paramProtocol: "http", paramNode: "n1"}))
	require.Len(t, b.records, 2)
	for i, want := range []string{"found", "cleared"} {
		record := b.records[i]
		require.Equal(t, "nccl.verdict", record.EventName)
		values := map[string]string{}
		for _, a := range record.Attributes {
			values[a.Key] = a.Value.String()
		}
		require.Contains(t, values["nccl.verdict.event"], want)
		require.Contains(t, values["nccl.verdict.waited"], "double_value:5")
		require.Contains(t, values["nccl.operation.sequence"], "161")
		require.Contains(t, values["code.line.number"], "41")
		require.Contains(t, values["nccl.verdict.ranks"], "int_value:3")
	}
	require.Equal(t, logsv1.SeverityNumber_SEVERITY_NUMBER_INFO, b.records[1].SeverityNumber)
}

func TestVerdictsNeedAReceiverOfLogs(t *testing.T) {
	var warnings bytes.Buffer
	log.SetOutput(&warnings)
	defer log.SetOutput(os.Stderr)
	b := newBackend(t)
	require.NoError(t, hanging(t, api.ParamValues{paramPyroscope: b.URL}))
	require.Contains(t, warnings.String(), "verdicts on ranks are sent as logs, to --otlp-endpoint alone")
	require.Zero(t, b.requests)
	require.NoError(t, hanging(t, nil), "nothing was requested")
	b.status.Store(http.StatusNotFound)
	require.ErrorContains(t, hanging(t, api.ParamValues{paramOTLP: b.URL, paramProtocol: "http"}), "it does not take OTLP logs")
}
