// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/listen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
)

// marks writes a profile each time that the user requests one: what `ig-gpu diff` compares.
type marks struct {
	path    string
	count   int
	asked   []markRequest // that came since the last rows
	due     []markRequest // those that came before: rows that come now were read after them
	signals chan os.Signal
	done    chan struct{}
	server  *listen.Server // of --mark-listen, or nil
	frames  frameMarks
	dumps   *markDumps
}

// markRequest receives the result; nil if no caller waits.
type markRequest chan<- markResult

type markResult struct {
	path string
	err  error
}

// checkMarks checks the parameters before anything is attached.
func checkMarks(values api.ParamValues) error {
	for _, name := range []string{paramEvery, paramFrame, paramListen} {
		if values[name] != "" && values[paramMark] == "" {
			return fmt.Errorf("--%s needs --%s", name, paramMark)
		}
	}
	if values[paramDump] == "true" && values[paramFrame] == "" {
		return fmt.Errorf("--%s needs --%s", paramDump, paramFrame)
	}
	if every := values[paramEvery]; every != "" {
		if d, err := duration.Parse(every); err != nil || d < 2*time.Second {
			return fmt.Errorf("--%s: want a duration of at least 2s, not %q", paramEvery, every)
		}
	}
	if pattern := values[paramFrame]; pattern != "" {
		if err := checkFrame(pattern); err != nil {
			return err
		}
	}
	if address := values[paramListen]; address != "" {
		if _, err := loopback(address); err != nil {
			return fmt.Errorf("--%s: %w", paramListen, err)
		}
	}
	return nil
}

// startMarks listens for SIGUSR1, for calls of --mark-listen, and for the time of
// --mark-every.
func (i *instance) startMarks(gc operators.GadgetContext) error {
	m := &marks{path: i.values[paramMark], signals: make(chan os.Signal, 8), done: make(chan struct{})}
	if m.path == "" {
		return nil
	}
	m.frames = frameMarks{pattern: i.values[paramFrame]}
	var err error
	if m.dumps, err = i.newMarkDumps(gc); err != nil {
		return err
	}
	if address := i.values[paramListen]; address != "" {
		if err := i.serveMarks(gc.Logger(), m, address); err != nil {
			return fmt.Errorf("--%s: %w", paramListen, err)
		}
	}
	i.marks = m
	signal.Notify(m.signals, unix.SIGUSR1)
	var every <-chan time.Time
	stop := func() {}
	if d, err := duration.Parse(i.values[paramEvery]); err == nil {
		ticker := time.NewTicker(d)
		every, stop = ticker.C, ticker.Stop
	}
	go func() {
		defer stop()
		for {
			select {
			case <-m.done:
				return
			case <-m.signals:
			case <-every:
			}
			i.ask(m, nil)
		}
	}()
	gc.SetVar(VarMark, func() { i.ask(m, nil) })
	gc.Logger().Infof("sink: kill -USR1 %d sets a mark: %s.1.pb.gz, .2 and so on", os.Getpid(), m.path)
	return nil
}

func (i *instance) ask(m *marks, r markRequest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m.asked = append(m.asked, r)
}

// loopback is the address to listen at, which other machines must not reach: who can
// call may have files written.
func loopback(address string) (string, error) {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return "", fmt.Errorf("want an address such as 127.0.0.1:9411, not %q", address)
	}
	if !a.Addr().IsLoopback() {
		return "", fmt.Errorf("%s can be reached from other machines: want a loopback address, such as 127.0.0.1:%d", address, a.Port())
	}
	return a.String(), nil
}

func (i *instance) serveMarks(log logger.Logger, m *marks, address string) error {
	address, err := loopback(address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mark", func(w http.ResponseWriter, r *http.Request) { i.serveMark(m, w, r) })
	mux.HandleFunc("POST /v1/logs", func(w http.ResponseWriter, r *http.Request) { i.serveEvents(m, w, r) })
	server, err := listen.Serve(address, mux, listen.Options{})
	if err != nil {
		return err
	}
	m.server = server
	go func() {
		if err := server.Wait(); !errors.Is(err, http.ErrServerClosed) {
			log.Errorf("sink: --%s: %v", paramListen, err)
		}
	}()
	log.Infof("sink: curl -X POST http://%s/mark sets a mark, and so does the OpenTelemetry event %s", server.Addr(), eventMark)
	return nil
}

// serveMark answers with the mark's file, when it is written.
func (i *instance) serveMark(m *marks, w http.ResponseWriter, r *http.Request) {
	if isFromPage(w, r) {
		return
	}
	result := make(chan markResult, 1)
	i.ask(m, result)
	select {
	case <-r.Context().Done():
	case <-m.done:
		http.Error(w, "the run has ended", http.StatusServiceUnavailable)
	case done := <-result:
		if done.err != nil {
			http.Error(w, done.err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, done.path)
	}
}

// stopMarks is called with i.mu held.
func (i *instance) stopMarks() {
	m := i.marks
	if m == nil {
		return
	}
	signal.Stop(m.signals)
	close(m.done)
	i.marks = nil
	m.dumps.wait()
	if m.server == nil {
		return
	}
	// Waiting callers learn that the run has ended, for which they do not need i.mu.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.server.Shutdown(ctx)
}

// mark writes the profiles that were requested before these rows were read: at the
// second rows that come, since the first may have been read already. It is called with
// i.mu held.
func (i *instance) mark(gc operators.GadgetContext) {
	m := i.marks
	if m == nil {
		return
	}
	due := m.due
	m.due, m.asked = m.asked, nil
	if m.frames.end() { // these rows have the calls
		gc.Logger().Infof("sink: %s is on the stack of a call", m.frames.where)
		due = append(due, nil)
		m.dumps.write(fmt.Sprintf("%s.%d.stacks.txt", m.path, m.count+len(due)), m.frames.pids)
	}
	for _, request := range due {
		m.count++
		path := fmt.Sprintf("%s.%d.pb.gz", m.path, m.count)
		err := i.writeMark(path)
		if request != nil {
			request <- markResult{path, err}
		}
		if err != nil {
			gc.Logger().Errorf("sink: --%s: %v", paramMark, err)
			continue
		}
		gc.Logger().Infof("sink: mark %d at %s: %s", m.count, i.recorder.At.Format(time.TimeOnly), path)
	}
}

func (i *instance) writeMark(path string) error {
	p := i.recorder.Profile()
	p.Subject, p.Period = i.subject, i.period
	o, err := file.Prepare(path)
	if err != nil {
		return err
	}
	if err := o.Commit(func(w io.Writer) error { return pprof.Encode(w, p) }); err != nil {
		o.Discard()
		return err
	}
	return nil
}
