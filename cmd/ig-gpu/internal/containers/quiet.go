// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"slices"

	log "github.com/sirupsen/logrus"
)

// expected lists what LocalManager warns about on every machine that runs no
// containers. There it is no news, and it reads as if the run had failed. A
// text that Inspektor Gadget has changed is simply shown again.
func expected() []string {
	return []string{
		"Failed to create container-collection",
		"container-collection isn't available: container enrichment and filtering won't work",
		"container-collection isn't available: no containers will be traced",
	}
}

// QuietWithoutRuntime keeps LocalManager's warnings about missing containers
// off the screen on a machine where no container runtime listens. They still
// show with --verbose, and on machines that do run containers.
func QuietWithoutRuntime(logger *log.Logger) {
	if HasRuntime() {
		return
	}
	logger.SetFormatter(&quiet{Formatter: logger.Formatter, messages: expected()})
}

// quiet formats an expected warning as nothing.
type quiet struct {
	log.Formatter
	messages []string
}

func (q *quiet) Format(entry *log.Entry) ([]byte, error) {
	isExpected := entry.Level == log.WarnLevel && slices.Contains(q.messages, entry.Message)
	if isExpected && !entry.Logger.IsLevelEnabled(log.DebugLevel) {
		return nil, nil
	}
	return q.Formatter.Format(entry)
}
