// SPDX-License-Identifier: Apache-2.0

package console

import (
	"io"

	"github.com/sirupsen/logrus"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
)

// CleanLogs keeps what a logger writes from driving a terminal, for messages have names that processes chose.
func CleanLogs(l *logrus.Logger) { l.SetFormatter(&cleaner{l.Formatter}) }

// cleaner formats entries with clean messages. Fields need none of it: logrus quotes them, and messages only where
// it writes to no terminal.
type cleaner struct{ logrus.Formatter }

// Format implements logrus.Formatter.
func (c *cleaner) Format(e *logrus.Entry) ([]byte, error) {
	clean := *e // others have the entry, too
	clean.Message = screen.CleanLines(e.Message)
	return c.Formatter.Format(&clean)
}

// Divert sends the program's log to a function instead of standard error, until the
// returned function is called: a screen would overwrite lines of a log.
func (*Terminal) Divert(to func(isWarning bool, text string)) (end func()) {
	log := logrus.StandardLogger()
	out, hooks := log.Out, log.Hooks
	own := logrus.LevelHooks{}
	for level, all := range hooks {
		own[level] = append(own[level], all...)
	}
	own.Add(hook(to))
	log.SetOutput(io.Discard)
	log.ReplaceHooks(own)
	return func() {
		log.ReplaceHooks(hooks)
		log.SetOutput(out)
	}
}

// hook calls on with each entry that is not for debugging only.
type hook func(isWarning bool, text string)

func (hook) Levels() []logrus.Level {
	return []logrus.Level{logrus.PanicLevel, logrus.FatalLevel, logrus.ErrorLevel, logrus.WarnLevel, logrus.InfoLevel}
}

func (h hook) Fire(e *logrus.Entry) error {
	// A formatter that gives nothing keeps the entry off the screen.
	if text, err := e.Logger.Formatter.Format(e); err == nil && len(text) == 0 {
		return nil
	}
	h(e.Level <= logrus.WarnLevel, e.Message)
	return nil
}
