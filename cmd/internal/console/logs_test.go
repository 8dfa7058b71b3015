// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"errors"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// TestNoNameInALogDrivesATerminal, where logrus writes messages as they are and where it quotes them.
func TestNoNameInALogDrivesATerminal(t *testing.T) {
	const name = "\x1b]52;c;ZXZpbA==\a\x1b[2J\u009b2Jpython3"
	for _, isTerminal := range []bool{true, false} {
		var out bytes.Buffer
		l := logrus.New()
		l.SetOutput(&out)
		l.SetFormatter(&logrus.TextFormatter{ForceColors: isTerminal, DisableColors: !isTerminal, DisableTimestamp: true})
		CleanLogs(l)
		l.WithField("comm", name).WithError(errors.New(name)).Warnf("allocation failed: %s[7]\n\tand more", name)
		text := out.String()
		require.Contains(t, text, "python3[7]")
		// The colours of the level and of each field are logrus's own.
		for _, own := range []string{"\x1b[33m", "\x1b[0m"} {
			text = string(bytes.ReplaceAll([]byte(text), []byte(own), nil))
		}
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, "\a")
		require.NotContains(t, text, "\u009b")
		if isTerminal {
			require.Contains(t, text, "python3[7]\n\tand more", "lines stay apart")
		}
	}
}

// silent formats one message as nothing, as package containers does.
type silent struct{ logrus.Formatter }

func (s silent) Format(e *logrus.Entry) ([]byte, error) {
	if e.Message == "expected" {
		return nil, nil
	}
	return s.Formatter.Format(e)
}

// TestAScreenHasNoMessageThatTheLogWouldNotHave.
func TestAScreenHasNoMessageThatTheLogWouldNotHave(t *testing.T) {
	l := logrus.StandardLogger()
	was := l.Formatter
	l.SetFormatter(silent{was})
	CleanLogs(l)
	t.Cleanup(func() { l.SetFormatter(was) })
	var shown []string
	end := (&Terminal{}).Divert(func(_ bool, text string) { shown = append(shown, text) })
	defer end()
	l.Warn("expected")
	l.Warn("a probe is missing")
	require.Equal(t, []string{"a probe is missing"}, shown)
}
