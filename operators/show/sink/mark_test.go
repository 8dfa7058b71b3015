// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

func TestMarksThatCannotBeSetAreRefused(t *testing.T) {
	for _, c := range []struct {
		want   string
		values api.ParamValues
	}{
		{"", api.ParamValues{}},
		{"", api.ParamValues{paramMark: "m", paramEvery: "1h", paramListen: "[::1]:9411"}},
		{"--mark-every needs --mark-out", api.ParamValues{paramEvery: "1h"}},
		{"--mark-listen needs --mark-out", api.ParamValues{paramListen: "127.0.0.1:1"}},
		{"--mark-on-frame needs --mark-out", api.ParamValues{paramFrame: "Trainer.save"}},
		{"want a function of Python", api.ParamValues{paramMark: "m", paramFrame: "Trainer.[save"}},
		{"want a function of Python", api.ParamValues{paramMark: "m", paramFrame: " "}},
		{"--mark-every: want a duration of at least 2s", api.ParamValues{paramMark: "m", paramEvery: "1s"}},
		{"can be reached from other machines", api.ParamValues{paramMark: "m", paramListen: "0.0.0.0:9411"}},
		{"want an address such as", api.ParamValues{paramMark: "m", paramListen: "localhost:9411"}},
		{"want an address such as", api.ParamValues{paramMark: "m", paramListen: ":9411"}},
	} {
		err := checkMarks(c.values)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

// A caller that waits for a mark gets an error when there will be none; pages of sites set none.
func TestMarksByHTTPEndWithTheRun(t *testing.T) {
	i, m := &instance{}, newMarks("")
	call := func(origin string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/mark", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		i.serveMark(m, w, r)
		return w
	}
	require.Equal(t, http.StatusForbidden, call("https://example.com").Code)
	require.Empty(t, m.asked)
	close(m.done)
	w := call("")
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "the run has ended\n", w.Body.String())
}

// written returns the files of marks in a directory.
func written(t *testing.T, m *marks) []string {
	t.Helper()
	all, err := filepath.Glob(m.path + ".*")
	require.NoError(t, err)
	return all
}

// TestMarksOfAnIntervalAreOne: all callers before the same rows get the same file.
func TestMarksOfAnIntervalAreOne(t *testing.T) {
	m := newMarks(filepath.Join(t.TempDir(), "m"))
	i, gc := &instance{marks: m}, gadgetcontext.New(t.Context(), "none")
	var results []chan markResult
	for range 10 {
		i.ask(m)
		result := make(chan markResult, 1)
		results = append(results, result)
		require.NoError(t, i.askFor(m, result))
	}
	require.Len(t, m.asked, 11, "one is enough for the user")
	i.mark(gc)
	require.Empty(t, written(t, m), "the rows may have been read before")
	i.mark(gc)
	want := m.path + ".1.pb.gz"
	require.Equal(t, []string{want}, written(t, m))
	for _, r := range results {
		require.Equal(t, markResult{path: want}, <-r)
	}
	i.mark(gc)
	i.mark(gc)
	require.Len(t, written(t, m), 1)
}

// TestACallerWhoHasGoneLeavesItsMark, and nothing else.
func TestACallerWhoHasGoneLeavesItsMark(t *testing.T) {
	m := newMarks(filepath.Join(t.TempDir(), "m"))
	i, gc := &instance{marks: m}, gadgetcontext.New(t.Context(), "none")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		i.serveMark(m, httptest.NewRecorder(), httptest.NewRequestWithContext(gone, http.MethodPost, "/mark", nil))
	}
	require.Equal(t, []markRequest{nil}, m.asked)
	i.mark(gc)
	i.mark(gc)
	require.Len(t, written(t, m), 1)

	late := make(chan markResult, 1)
	require.NoError(t, i.askFor(m, late))
	i.mark(gc)
	i.withdraw(m, late)
	require.Equal(t, []markRequest{nil}, m.due)
	i.mark(gc)
	require.Len(t, written(t, m), 2)
}

// TestCallersSetAFewMarksAMinute; the user, by signals, any number.
func TestCallersSetAFewMarksAMinute(t *testing.T) {
	m := newMarks(filepath.Join(t.TempDir(), "m"))
	i := &instance{marks: m}
	for range callerMarks {
		m.asked = nil
		require.NoError(t, i.askFor(m, nil))
	}
	require.NoError(t, i.askFor(m, make(chan markResult, 1)), "of the same file")
	m.asked = nil
	w := httptest.NewRecorder()
	i.serveMark(m, w, httptest.NewRequest(http.MethodPost, "/mark", nil))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "at most 30 marks a minute are set by --mark-listen\n", w.Body.String())

	for _, kind := range []string{typeProtobuf, typeJSON} {
		r := httptest.NewRequest(http.MethodPost, "/v1/logs", strings.NewReader(request(t, &logs.LogRecord{EventName: eventMark})))
		if kind == typeJSON {
			r = httptest.NewRequest(http.MethodPost, "/v1/logs", strings.NewReader(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"eventName":"gpu_gadgets.mark"}]}]}]}`))
		}
		r.Header.Set("Content-Type", kind)
		w = httptest.NewRecorder()
		i.serveEvents(m, w, r)
		require.Equal(t, http.StatusOK, w.Code, "an exporter would send it again")
		answer := &collector.ExportLogsServiceResponse{}
		if kind == typeJSON {
			require.NoError(t, protojson.Unmarshal(w.Body.Bytes(), answer))
		} else {
			require.NoError(t, proto.Unmarshal(w.Body.Bytes(), answer))
		}
		require.EqualValues(t, 1, answer.PartialSuccess.GetRejectedLogRecords())
	}
	require.Empty(t, m.asked)
	i.ask(m)
	require.Len(t, m.asked, 1)
}

// TestAPipeAtTheNameOfAMarkStopsNothing: i.mu is held while it is written.
func TestAPipeAtTheNameOfAMarkStopsNothing(t *testing.T) {
	m := newMarks(filepath.Join(t.TempDir(), "m"))
	i, gc := &instance{marks: m}, gadgetcontext.New(t.Context(), "none")
	require.NoError(t, unix.Mkfifo(m.path+".1.pb.gz", 0o600))
	result := make(chan markResult, 1)
	require.NoError(t, i.askFor(m, result))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.mark(gc)
		i.mark(gc)
	}()
	select {
	case <-ended:
	case <-time.After(3 * time.Second):
		t.Fatal("it waits for a reader")
	}
	require.ErrorContains(t, (<-result).err, "m.1.pb.gz is a pipe")
}
