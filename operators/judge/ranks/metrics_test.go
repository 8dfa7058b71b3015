// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
)

// TestMetricsHaveTheNamesOfTheRules: what Prometheus makes of OpenTelemetry's names is
// what dashboards/nccl.yaml asks for.
func TestMetricsHaveTheNamesOfTheRules(t *testing.T) {
	a, err := collective.New(collective.Config{Hang: time.Second})
	require.NoError(t, err)
	now := collective.Time(time.Now().UnixNano())
	long := now - collective.Time(20*time.Second)
	for n := range 2 {
		o := collective.Observation{At: now, Process: collective.Process{ID: uint64(n + 1), PID: uint32(10 + n), Comm: "python3"},
			Communicator: collective.Communicator{Hash: 1 << 40, Name: "world", Size: 3}, Rank: n, Issued: 16 - uint64(n), Done: 2, DoneAt: long}
		o.Operations = []collective.Operation{
			{Seq: 16 - uint64(n), Kind: collective.AllReduce, Count: 1, Peer: collective.None, Enter: long, PendingAt: now},
			{Seq: 1, Kind: collective.Send, Peer: 1 - n, Enter: long + 1, PendingAt: now},
		}
		o.Digests.Set(1, 1<<40)
		require.NoError(t, a.Observe(o))
	}
	a.Evaluate(now)
	require.NotEmpty(t, a.Verdicts())
	store := &Store{}
	ranks := a.Ranks(now)
	ranks[0].Iteration = time.Second
	ranks[0].WaitShare = 0.25 // of a communicator that is seen in whole
	end := store.Publish(ranks, a.Verdicts(), now)

	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	require.NoError(t, err)
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	defer func() { require.NoError(t, provider.Shutdown(t.Context())) }()
	remove, err := store.Instrument(provider.Meter("test"))
	require.NoError(t, err)
	defer remove()
	gather := func() map[string]int {
		families, err := registry.Gather()
		require.NoError(t, err)
		names := map[string]int{}
		for _, f := range families {
			names[f.GetName()] = len(f.GetMetric())
		}
		return names
	}
	names := gather()
	for _, i := range collective.Instruments() {
		require.Positive(t, names[i.Prometheus], "%s is not %s", i.Name, i.Prometheus)
	}
	require.Positive(t, names["nccl_verdict"])
	require.Positive(t, names["nccl_verdict_waited_seconds"])
	end()
	require.Empty(t, gather(), "series end with the run")
}

// TestAVerdictOnALostNodeIsOnIt, and not on the node of a rank that waits.
func TestAVerdictOnALostNodeIsOnIt(t *testing.T) {
	v := &collective.Verdict{Reason: collective.Elsewhere, Witness: collective.Process{Node: "one", Namespace: "ml", Pod: "worker-0", PID: 7}}
	require.Equal(t, []collective.Culprit{{Rank: -1, Process: collective.Process{Node: "one", Namespace: "ml", Pod: "worker-0"}}}, culprits(v))
	v.Lost = []collective.LostNode{{Name: "two"}, {Name: "three"}}
	require.Equal(t, []collective.Culprit{{Rank: -1, Process: collective.Process{Node: "two", Namespace: "ml"}},
		{Rank: -1, Process: collective.Process{Node: "three", Namespace: "ml"}}}, culprits(v))
}
