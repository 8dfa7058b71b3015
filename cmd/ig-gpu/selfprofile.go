// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/grafana/pyroscope-go"
	log "github.com/sirupsen/logrus"

	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/export"
)

// selfService is the name of ig-gpu in Pyroscope.
const selfService = "ig-gpu"

// startSelfProfile sends profiles of ig-gpu itself to Pyroscope, so that what tracing
// costs is seen beside what is traced. The returned function sends the rest, for a
// bounded time.
func startSelfProfile(url string) (stop func(), err error) {
	endpoint, err := export.PyroscopeEndpoint(url)
	if err != nil {
		return nil, fmt.Errorf("--self-profile: %w", err)
	}
	profiler, err := pyroscope.Start(pyroscope.Config{
		ApplicationName: selfService,
		ServerAddress:   endpoint.URL.String(),
		HTTPClient:      endpoint.Client(),
		Tags:            map[string]string{"node": export.Node()},
		// Collecting garbage for each profile of the heap would be a cost that
		// only looking makes.
		DisableGCRuns: true,
		Logger:        &selfLog{},
	})
	if err != nil {
		return nil, fmt.Errorf("--self-profile: %w", err)
	}
	return func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = profiler.Stop() // its errors are in the log
		}()
		select {
		case <-done:
		case <-time.After(3 * time.Second):
		}
	}, nil
}

// selfLog keeps a server that is away from flooding the log: the profiler sends each
// profile once and logs it each time.
type selfLog struct{ errors throttle.Throttle }

func (*selfLog) Infof(string, ...any)  {}
func (*selfLog) Debugf(string, ...any) {}

func (l *selfLog) Errorf(format string, args ...any) {
	if suppressed, ok := l.errors.Pass(time.Now()); ok {
		log.Warnf("self profile: %s (%d more like this)", fmt.Sprintf(format, args...), suppressed)
	}
}
