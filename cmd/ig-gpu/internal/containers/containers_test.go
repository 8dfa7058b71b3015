// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	log "github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

func TestExpectedWarningsAreShownOnlyWhenVerbose(t *testing.T) {
	var out bytes.Buffer
	logger := log.New()
	logger.SetOutput(&out)
	logger.SetFormatter(&quiet{Formatter: logger.Formatter, messages: expected()})

	for _, message := range expected() {
		logger.Warn(message)
	}
	require.Empty(t, out.String())

	logger.Error(expected()[0])
	require.Contains(t, out.String(), expected()[0], "only warnings are expected")
	out.Reset()

	logger.Warn("something else")
	require.Contains(t, out.String(), "something else")
	out.Reset()

	logger.SetLevel(log.DebugLevel)
	logger.Warn(expected()[0])
	require.Contains(t, out.String(), expected()[0])
}

func TestStandingInForProcessOneIsSeenByOneThread(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts in an own mount namespace")
	}
	status := func() string {
		content, err := os.ReadFile("/proc/1/stat")
		require.NoError(t, err)
		return string(content[:bytes.IndexByte(content, ' ')])
	}
	var inside string
	var readable error
	require.NoError(t, asProcessOne(func() error {
		inside = status()
		_, readable = os.Stat("/proc/1/ns/mnt")
		return nil
	}))
	require.NoError(t, readable)
	require.Equal(t, fmt.Sprint(os.Getpid()), inside)
	require.Equal(t, "1", status(), "the real process 1 is back")
}

func TestErrorOfTheStandInIsReturned(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounts in an own mount namespace")
	}
	want := errors.New("no such luck")
	require.ErrorIs(t, asProcessOne(func() error { return want }), want)
}
