// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/window"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

// said is a log.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Infof(format string, args ...any) { s.Warnf(format, args...) }
func (s *said) Warnf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.text, format+"\n", args...)
}

// The encoder calls what knows the GPUs, and servers' libraries: the run ends whatever they do.
func TestEncoderThatHangsKeepsNoRunFromItsEnd(t *testing.T) {
	b := newBackend(t)
	log := &said{}
	s, err := NewSender(api.ParamValues{paramPyroscope: b.URL}, SenderConfig{Log: log})
	require.NoError(t, err)
	s.timeout = 50 * time.Millisecond
	hangs, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	var once sync.Once
	s.Start(func(profile.Process, int32) string {
		once.Do(func() { close(hangs) })
		<-end
		return ""
	})
	w := window.Window{Start: time.Now(), End: time.Now().Add(time.Second), Rows: []profile.Row{{
		Process: profile.Process{ID: 1, PID: 10}, Kind: "device", Values: profile.Values{AllocBytes: 1, AllocObjects: 1}}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Put(w)
		<-hangs
		s.Put(w) // waits for the encoder
		s.Put(w)
		s.Close(flushTimeout)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the end of a run waits for the encoder")
	}
	require.Contains(t, log.text.String(), "export: a window is lost: the encoder has finished none for 50ms")
	require.Contains(t, log.text.String(), "export: the last windows are lost: the encoder was not done within 50ms")
}

// gpu-exporter has a window for each of a thousand nodes when it loses the API server.
func TestWindowsWaitForAnEncoderThatIsBusy(t *testing.T) {
	b := newBackend(t)
	log := &said{}
	s, err := NewSender(api.ParamValues{paramPyroscope: b.URL}, SenderConfig{Log: log})
	require.NoError(t, err)
	s.timeout = 1500 * time.Millisecond
	s.Start(func(profile.Process, int32) string {
		time.Sleep(50 * time.Millisecond)
		return ""
	})
	const windows = 60 // 3 s
	var nodes sync.WaitGroup
	for n := range windows {
		nodes.Go(func() {
			s.Put(window.Window{Start: time.Now(), End: time.Now().Add(time.Second), Rows: []profile.Row{{
				Process: profile.Process{ID: uint64(n), PID: uint32(n)}, Kind: "device", Values: profile.Values{AllocBytes: 1, AllocObjects: 1}}}})
		})
	}
	nodes.Wait()
	s.timeout = time.Minute
	s.Close(time.Minute)
	require.Empty(t, log.text.String())
	require.EqualValues(t, windows, b.alloc)
}
