// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// shares is how often each function was innermost.
type shares map[string]float64

func (s shares) sum() (sum float64) {
	for _, n := range s {
		sum += n
	}
	return sum
}

func (s shares) add(more shares) {
	for name, n := range more {
		s[name] += n
	}
}

// percent of all samples.
func (s shares) percent(name string) float64 { return 100 * s[name] / s.sum() }

// readAustin counts the lines of austin's text output, a sample each:
//
//	P1;T0:2;FILE:FUNCTION:LINE;…;FILE:FUNCTION:LINE MICROSECONDS
//
// outermost frame first. Samples of threads without frames are left out.
func readAustin(r io.Reader) (shares, error) {
	return eachLeaf(r, func(leaf, value string) (string, float64, error) {
		parts := strings.Split(leaf, ":")
		if len(parts) < 3 {
			return "", 0, nil
		}
		return parts[len(parts)-2], 1, nil
	})
}

// readPySpy reads py-spy record --format raw: FUNCTION (FILE:LINE);… SAMPLES.
func readPySpy(r io.Reader) (shares, error) {
	return eachLeaf(r, func(leaf, value string) (string, float64, error) {
		name, _, _ := strings.Cut(leaf, " (")
		n, err := strconv.ParseFloat(value, 64)
		return name, n, err
	})
}

func eachLeaf(r io.Reader, count func(leaf, value string) (string, float64, error)) (shares, error) {
	s := shares{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		frames := strings.Split(line[:at], ";")
		name, n, err := count(frames[len(frames)-1], line[at+1:])
		if err != nil {
			return nil, fmt.Errorf("line %.60q: %w", line, err)
		}
		if name != "" {
			s[name] += n
		}
	}
	return s, lines.Err()
}
