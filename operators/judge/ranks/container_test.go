// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/gpu-gadgets/gpu-gadgets/internal/collective"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// series returns the labels of a metric's series, by rank.
func series(t *testing.T, store *Store, name string) map[string]map[string]string {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	require.NoError(t, err)
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	defer func() { require.NoError(t, provider.Shutdown(t.Context())) }()
	remove, err := store.Instrument(provider.Meter("test"))
	require.NoError(t, err)
	defer remove()
	families, err := registry.Gather()
	require.NoError(t, err)
	out := map[string]map[string]string{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			out[labels["rank"]] = labels
		}
	}
	return out
}

// isIn checks the labels of a container.
func isIn(t *testing.T, labels map[string]string, node, namespace, pod, pid string) {
	t.Helper()
	require.Equal(t, []string{node, namespace, pod, "server", pid},
		[]string{labels["k8s_node_name"], labels["k8s_namespace_name"], labels["k8s_pod_name"], labels["k8s_container_name"], labels["process_pid"]})
}

// contained is a rank in a pod, whose process has the same id on each node, and which waits for collective 5 or has done 4.
func contained(number int, namespace string, waits bool, now time.Time) row {
	at := collective.Time(now.UnixNano())
	began := collective.Time(time.Unix(1800000000, 0).UnixNano())
	r := row{handle: 1, mntns: 33, container: profile.Process{Namespace: namespace, Pod: "train-0", Container: "server"}}
	op := collective.Operation{Seq: 5, Kind: collective.AllReduce, Count: 1, Peer: collective.None, Enter: began, Return: began + 1, PendingAt: at}
	r.Observation = collective.Observation{At: at, Process: collective.Process{ID: 7, PID: 70, Comm: "python3"},
		Communicator: collective.Communicator{Hash: 1 << 40, Size: 2}, Rank: number, Issued: 5, Done: 4, DoneAt: began - 2}
	if !waits {
		op.Seq, op.Enter, op.DoneBy, op.PendingAt = 4, began-3, began-2, 0
		r.Issued = 4
	}
	r.Operations = []collective.Operation{op}
	return r
}

// TestADeadRankStaysInItsPod: its rows end a minute after it, and the verdict has the same labels as long as others wait.
func TestADeadRankStaysInItsPod(t *testing.T) {
	store := &Store{}
	var reported []profile.Hang
	j, err := NewJoiner(JoinConfig{Hang: 2 * time.Second, Store: store, Report: func(h profile.Hang) { reported = append(reported, h) }})
	require.NoError(t, err)
	j.run = store.begin()
	began := time.Unix(1800000000, 0)
	a, b := j.Node("a"), j.Node("b")
	for i := range 200 {
		now := began.Add(time.Duration(i) * time.Second)
		at := collective.Time(now.UnixNano())
		require.NoError(t, a.put(contained(0, "team-a", true, now), at))
		if i < 60 {
			dead := contained(1, "team-b", false, now)
			dead.exited = collective.Time(began.Add(time.Second).UnixNano())
			require.NoError(t, b.put(dead, at))
		}
		for _, n := range []*Node{a, b} {
			n.fresh, n.heard, n.isRead = at, at, true
		}
		j.Judge(now)
		if i == 10 || i == 199 {
			isIn(t, series(t, store, "nccl_verdict")["1"], "b", "team-b", "train-0", "70")
			dead := series(t, store, "nccl_rank_dead")
			isIn(t, dead["0"], "a", "team-a", "train-0", "70")
			isIn(t, dead["1"], "b", "team-b", "train-0", "70")
		}
	}
	require.Empty(t, b.rows)
	require.Len(t, reported, 1)
	require.Equal(t, "dead", reported[0].Reason)
	require.Equal(t, profile.Process{ID: 7, PID: 70, Comm: "python3", Namespace: "team-b", Pod: "train-0", Container: "server", Node: "b"}, reported[0].Process)
}

// TestAVerdictWithoutACulpritIsInAPod that waits: its owner sees no others.
func TestAVerdictWithoutACulpritIsInAPod(t *testing.T) {
	store := &Store{}
	var reported []profile.Hang
	j, err := NewJoiner(JoinConfig{Hang: 2 * time.Second, Store: store, Report: func(h profile.Hang) { reported = append(reported, h) }})
	require.NoError(t, err)
	j.run = store.begin()
	a := j.Node("a")
	for i := range 5 {
		now := time.Unix(1800000000+int64(i), 0)
		at := collective.Time(now.UnixNano())
		require.NoError(t, a.put(contained(0, "team-a", true, now), at))
		a.fresh, a.heard, a.isRead = at, at, true
		j.Judge(now)
	}
	require.Len(t, reported, 1)
	require.Equal(t, "elsewhere", reported[0].Reason)
	require.Equal(t, profile.Process{Namespace: "team-a", Pod: "train-0", Container: "server", Node: "a"}, reported[0].Process)
	verdicts := series(t, store, "nccl_verdict")
	require.Len(t, verdicts, 1)
	isIn(t, verdicts["-1"], "a", "team-a", "train-0", "0")
	h := hang(&j.analyzer.Verdicts()[0], 0, func(process uint64) uint64 { return 100 + process })
	require.EqualValues(t, 107, h["mntns_id"])
}

// TestAProcessIsKnownAsLongAsItIsJudged: rows of `hangs` and `collectives` name its container.
func TestAProcessIsKnownAsLongAsItIsJudged(t *testing.T) {
	analyzer, err := collective.New(collective.Config{Hang: time.Second})
	require.NoError(t, err)
	i := &instance{cfg: Config{ProcFS: "/proc"}, analyzer: analyzer, rows: map[rankKey]*rank{}, processes: map[uint64]*process{},
		called: func(uint64, uint32, uint64) place { return place{} }}
	now := time.Unix(1800000000, 0)
	dead := contained(1, "team-b", false, now)
	dead.exited = dead.At
	i.put(dead)
	waits := contained(0, "team-a", true, now)
	waits.Process.ID, waits.Process.PID, waits.tid = 8, uint32(os.Getpid()), uint32(os.Getpid())
	i.put(waits)
	i.observe(dead.At)
	waits.At += collective.Time(2 * time.Minute)
	waits.Operations[0].PendingAt = waits.At
	i.put(waits)
	i.observe(waits.At)
	require.Len(t, i.rows, 1)
	require.NotEmpty(t, analyzer.Evaluate(waits.At))
	require.EqualValues(t, 33, i.mntns(7))
	require.Equal(t, "team-b", analyzer.Ranks(waits.At)[1].Process.Namespace)
}
