// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
)

// plain makes attributes comparable.
func plain(all []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			m[a.Key] = v.DoubleValue
		case *common.AnyValue_ArrayValue:
			var list []int64
			for _, e := range v.ArrayValue.Values {
				list = append(list, e.GetIntValue())
			}
			m[a.Key] = list
		}
	}
	return m
}

var stopped = profile.Hang{
	Event: "found", Time: time.Unix(1700000000, 7), Reason: "dead", Text: "rank 1 of 4 is stopped, before Broadcast 161",
	Communicator: "0xb17fa0d3d4a93d4e", Name: "training", Size: 4, Operation: "Broadcast", Seq: 161,
	Ranks: []int64{1}, Waiting: []int64{0, 2, 3}, Rank: 1, State: "stopped", Wchan: "do_signal_stop", Waited: 30600 * time.Millisecond,
	Process: profile.Process{ID: 9, PID: 2202, Comm: "python3", Namespace: "ml", Pod: "train-0", Workload: "train"},
	Stack:   stack.ParseFolded("<module> (train.py:70); Rank.load (train.py:41)"),
}

func TestAVerdictIsALog(t *testing.T) {
	for _, protocol := range Protocols {
		t.Run(protocol, func(t *testing.T) {
			r := &receiver{}
			c, _ := connect(t, Protocol(protocol), r, remote.Config{})
			require.NoError(t, c.Logs(t.Context(), (&Encoder{Series: series.Config{Cluster: "c1", Node: "n1"}}).Hang(stopped)))
			require.Len(t, r.logs, 1)
			require.Equal(t, map[string]any{
				"service.name": "train", "k8s.cluster.name": "c1", "k8s.node.name": "n1", "k8s.namespace.name": "ml", "k8s.pod.name": "train-0", "process.pid": "2202",
			}, plain(r.logs[0].ResourceLogs[0].Resource.Attributes))
			record := r.logs[0].ResourceLogs[0].ScopeLogs[0].LogRecords[0]
			require.Equal(t, "nccl.verdict", record.EventName)
			require.Equal(t, logs.SeverityNumber_SEVERITY_NUMBER_ERROR, record.SeverityNumber)
			require.Equal(t, "ERROR", record.SeverityText)
			require.EqualValues(t, stopped.Time.UnixNano(), record.TimeUnixNano)
			require.Equal(t, stopped.Text, record.Body.GetStringValue())
			require.Equal(t, map[string]any{
				"nccl.verdict.event": "found", "nccl.verdict.reason": "dead", "nccl.verdict.waited": 30.6,
				"nccl.verdict.ranks": []int64{1}, "nccl.verdict.waiting": []int64{0, 2, 3},
				"nccl.communicator.id": "0xb17fa0d3d4a93d4e", "nccl.communicator.name": "training", "nccl.communicator.size": int64(4),
				"nccl.operation.name": "Broadcast", "nccl.operation.sequence": int64(161),
				"nccl.rank": int64(1), "nccl.rank.state": "stopped", "nccl.rank.wchan": "do_signal_stop", "process.executable.name": "python3",
				"code.function.name": "Rank.load", "code.file.path": "train.py", "code.line.number": int64(41),
				"code.stacktrace": "<module> (train.py:70); Rank.load (train.py:41)",
			}, plain(record.Attributes))
		})
	}
}

// TestAVerdictWithoutACulprit has no rank, process or line.
func TestAVerdictWithoutACulprit(t *testing.T) {
	r := &receiver{}
	c, _ := connect(t, HTTP, r, remote.Config{})
	require.NoError(t, c.Logs(t.Context(), (&Encoder{}).Hang(profile.Hang{Event: "found", Reason: "slow", Communicator: "0x1", Rank: -1, Waiting: []int64{0, 1}, Text: "\xff"})))
	record := r.logs[0].ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	require.Equal(t, map[string]any{"nccl.verdict.event": "found", "nccl.verdict.reason": "slow", "nccl.verdict.waited": 0.0,
		"nccl.communicator.id": "0x1", "nccl.verdict.waiting": []int64{0, 1}}, plain(record.Attributes))
	require.Equal(t, map[string]any{"service.name": "unknown"}, plain(r.logs[0].ResourceLogs[0].Resource.Attributes))
}

// TestALostNodeIsAnError, which other verdicts on ranks elsewhere are not.
func TestALostNodeIsAnError(t *testing.T) {
	request := (&Encoder{}).Hang(profile.Hang{Event: "found", Reason: "elsewhere", Rank: -1, Unseen: []int64{2, 3}, Nodes: []string{"two"}})
	record := request.ResourceLogs[0].ScopeLogs[0].LogRecords[0]
	require.Equal(t, "ERROR", record.SeverityText)
	for _, a := range record.Attributes {
		if a.Key == "nccl.verdict.nodes" {
			require.Len(t, a.Value.GetArrayValue().Values, 1)
			require.Equal(t, "two", a.Value.GetArrayValue().Values[0].GetStringValue())
			return
		}
	}
	require.Fail(t, "no nccl.verdict.nodes", "%v", record.Attributes)
}

func TestSeverityOfVerdicts(t *testing.T) {
	for _, c := range []struct{ event, reason, want string }{
		{"found", "missing", "ERROR"}, {"changed", "dead", "ERROR"}, {"found", "mismatch", "ERROR"}, {"found", "slow", "ERROR"},
		{"found", "unmatched", "ERROR"}, {"found", "straggler", "WARN"}, {"found", "elsewhere", "WARN"}, {"cleared", "missing", "INFO"}, {"ras", "missing", "WARN"},
	} {
		request := (&Encoder{}).Hang(profile.Hang{Event: c.event, Reason: c.reason})
		require.Equal(t, c.want, request.ResourceLogs[0].ScopeLogs[0].LogRecords[0].SeverityText, "%s %s", c.event, c.reason)
	}
}

func TestCheckOfLogs(t *testing.T) {
	for status, want := range map[int]string{http.StatusNotFound: "it does not take OTLP logs", http.StatusUnauthorized: "credentials", http.StatusBadRequest: ""} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", status) }))
		defer server.Close()
		endpoint, err := remote.New(remote.Config{URL: server.URL})
		require.NoError(t, err)
		c, err := NewClient(HTTP, endpoint)
		require.NoError(t, err)
		unreachable, refused := c.CheckLogs(t.Context())
		require.NoError(t, unreachable)
		if want == "" {
			require.NoError(t, refused, "an empty request may be refused")
		} else {
			require.ErrorContains(t, refused, want)
		}
	}
}
