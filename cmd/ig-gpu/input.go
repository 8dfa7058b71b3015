// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
)

// errNoProcess: without it, the output of a pgrep that finds nothing would select every
// process of the machine.
var errNoProcess = errors.New("--pid is empty: no process was found to trace. Name one, or leave out --pid to trace all of them")

// acceptInput makes command lines work that people write: - is standard output, `run GADGET --pid PID` traces
// the whole machine for PID (--host), unless containers are selected as well, and durations
// are 30s, 2m or 30.
func acceptInput(args []string) (_ []string, err error) {
	at := slices.Index(args, "run")
	if at < 0 {
		return args, nil
	}
	out := toStandardOutput(args, at)
	pid, host := 0, false // where --pid is
	for i := at + 1; i < len(out) && out[i] != "--"; i++ {
		name, value, inline := strings.Cut(out[i], "=")
		host = host || name == "--host" || selectsContainers(name)
		isDuration := slices.Contains(durationFlags, strings.TrimPrefix(name, "--"))
		if name != "--pid" && name != "--timeout" && name != "-t" && !isDuration {
			continue
		}
		flag, prefix := i, name+"="
		if !inline {
			prefix = ""
			if i++; i < len(out) {
				value = out[i]
			}
		}
		if name == "--pid" {
			if strings.TrimSpace(value) == "" {
				return nil, errNoProcess
			}
			pid = flag
			continue
		}
		if isDuration {
			value = withUnit(value)
		} else if value, err = wholeSeconds(value); err != nil {
			return nil, err
		}
		if i < len(out) {
			out[i] = prefix + value
		}
	}
	if pid > 0 && !host { // not before the gadget, whose flag it is
		out = slices.Insert(out, pid, "--host")
	}
	return out, nil
}

// selectsContainers are Inspektor Gadget's filters, with which --host would be too much.
func selectsContainers(flag string) bool {
	return flag == "-c" || slices.ContainsFunc([]string{"--containername", "--runtime-container", "--k8s-"}, func(prefix string) bool {
		return strings.HasPrefix(flag, prefix)
	})
}

// durationFlags are the flags of `run` whose values Inspektor Gadget accepts with a unit only;
// --timeout is the one that it accepts without a unit only.
var durationFlags = []string{
	"scan-interval", "mark-every", "older-than", "hang", "straggler", "metrics-interval", "export-interval",
	"otel-metrics-print-interval", "statistics-interval", "metrics-idle-holders", "metrics-frozen", "forget-exited",
}

// withUnit writes a plain number as seconds. Other text is left to Inspektor Gadget.
func withUnit(text string) string {
	d, err := duration.Parse(text)
	if err != nil {
		return text
	}
	return d.String()
}

// wholeSeconds turns a duration into what Inspektor Gadget's --timeout takes. Other text
// is left to Inspektor Gadget.
func wholeSeconds(text string) (string, error) {
	d, err := duration.Parse(text)
	if err != nil {
		return text, nil
	}
	if d < 0 || d%time.Second != 0 {
		return "", fmt.Errorf("--timeout %s: want whole seconds, such as 30 or 30s", text)
	}
	return strconv.Itoa(int(d / time.Second)), nil
}

// standardOutput is the file that - names where a file is written.
const standardOutput = "/dev/stdout"

// toStandardOutput copies a command line, with - instead of a file to write as the path of
// standard output. Tables would be in between: they are not printed then, unless they are
// requested.
func toStandardOutput(args []string, run int) []string {
	out := slices.Clone(args)
	used, hasOutput := false, false
	for i := run + 1; i < len(out) && out[i] != "--"; i++ {
		name, value, inline := strings.Cut(out[i], "=")
		hasOutput = hasOutput || name == "--output" || strings.HasPrefix(name, "-o")
		if !strings.HasPrefix(name, "--") || !strings.HasSuffix(name, "-out") && !strings.HasSuffix(name, "-html") {
			continue
		}
		switch {
		case inline && value == "-":
			out[i] = name + "=" + standardOutput
			used = true
		case !inline && i+1 < len(out):
			if i++; out[i] == "-" {
				out[i] = standardOutput
				used = true
			}
		}
	}
	if used && !hasOutput {
		out = slices.Insert(out, run+1, "--output=none")
	}
	return out
}
