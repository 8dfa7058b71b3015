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
	"slices"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/logger"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/listen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/file"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/pprof"
)

// callerMarks is how many marks a minute callers of --mark-listen may set, as many as --mark-every, and at once: any
// process of the machine can call.
const callerMarks = 30

var errTooManyMarks = fmt.Errorf("at most %d marks a minute are set by --%s", callerMarks, paramListen)

// marks writes a profile each time that the user requests one: what `ig-gpu diff` compares.
type marks struct {
	path    string
	count   int
	asked   []markRequest // that came since the last rows; all get the same mark
	due     []markRequest // those that came before: rows that come now were read after them
	callers *rate.Limiter // of marks for callers
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

func newMarks(path string) *marks {
	return &marks{path: path, signals: make(chan os.Signal, 8), done: make(chan struct{}),
		callers: rate.NewLimiter(rate.Every(time.Minute/callerMarks), callerMarks)}
}

// startMarks listens for SIGUSR1, for calls of --mark-listen, and for the time of
// --mark-every.
func (i *instance) startMarks(gc operators.GadgetContext) error {
	m := newMarks(i.values[paramMark])
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
			i.ask(m)
		}
	}()
	gc.SetVar(VarMark, func() { i.ask(m) })
	gc.Logger().Infof("sink: kill -USR1 %d sets a mark: %s.1.pb.gz, .2 and so on", os.Getpid(), m.path)
	return nil
}

// ask requests a mark for the user.
func (i *instance) ask(m *marks) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m.add(nil)
}

// askFor requests a mark for a caller, unless callers have set too many.
func (i *instance) askFor(m *marks, r markRequest) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(m.asked) == 0 && !m.callers.Allow() {
		return errTooManyMarks
	}
	m.add(r)
	return nil
}

// withdraw keeps the mark and forgets its caller, who has disconnected.
func (i *instance) withdraw(m *marks, r markRequest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	is := func(other markRequest) bool { return other == r }
	if slices.ContainsFunc(m.asked, is) {
		m.asked = slices.DeleteFunc(m.asked, is)
		m.add(nil)
	}
	if n := slices.IndexFunc(m.due, is); n >= 0 {
		m.due[n] = nil
	}
}

// add adds a request to those that came since the last rows. One without a caller is enough.
func (m *marks) add(r markRequest) {
	if r != nil || !slices.Contains(m.asked, nil) {
		m.asked = append(m.asked, r)
	}
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
	if err := i.askFor(m, result); err != nil {
		w.Header().Set("Retry-After", "2")
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	select {
	case <-r.Context().Done():
		i.withdraw(m, result)
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

// mark writes a profile if one was requested before these rows were read: at the
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
		m.dumps.write(fmt.Sprintf("%s.%d.stacks.txt", m.path, m.count+1), m.frames.pids)
	}
	if len(due) == 0 {
		return
	}
	m.count++
	path := fmt.Sprintf("%s.%d.pb.gz", m.path, m.count)
	err := i.writeMark(path)
	for _, request := range due {
		if request != nil {
			request <- markResult{path, err}
		}
	}
	if err != nil {
		gc.Logger().Errorf("sink: --%s: %v", paramMark, err)
		return
	}
	gc.Logger().Infof("sink: mark %d at %s: %s", m.count, i.recorder.At.Format(time.TimeOnly), path)
}

// writeMark waits for no other process: i.mu is held, without which the run does not end.
func (i *instance) writeMark(path string) error {
	p := i.recorder.Profile()
	p.Subject, p.Period = i.subject, i.period
	return file.Write(path, func(w io.Writer) error { return pprof.Encode(w, p) })
}
