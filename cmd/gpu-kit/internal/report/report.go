// SPDX-License-Identifier: Apache-2.0

// Package report has the kit's results as lines with verdicts: the expected value, the
// measured one, and whether they are equal. Markdown is for readers, JSON for programs;
// both have every line.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Verdict of a line.
type Verdict string

const (
	// Same means that the measured value is the expected one.
	Same Verdict = "same"
	// Different means that it is not.
	Different Verdict = "different"
	// NotPossible means that it could not be measured here; the line has the reason.
	NotPossible Verdict = "not possible"
	// Recorded is a figure without an expected value.
	Recorded Verdict = "recorded"
)

// Line is one thing that the kit settles.
type Line struct {
	Step     string  `json:"step"`
	Name     string  `json:"name"`
	Expected string  `json:"expected,omitempty"`
	Measured string  `json:"measured,omitempty"`
	Verdict  Verdict `json:"verdict"`
	Why      string  `json:"why,omitempty"`
	// Varies: the figure is a time or depends on one, and is another one in each run.
	Varies bool `json:"varies,omitempty"`
}

// Report is all lines in the order of the steps.
type Report struct {
	Machine map[string]string `json:"machine"`
	// IsSimulated: the driver was the simulated one, so no line is about a GPU.
	IsSimulated bool    `json:"is_simulated"`
	Seconds     float64 `json:"seconds"`
	Lines       []Line  `json:"lines"`
}

// Count is how many lines have a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, l := range r.Lines {
		if l.Verdict == v {
			n++
		}
	}
	return n
}

// Step collects the lines of one step. It is not safe for concurrent use.
type Step struct {
	Name  string
	Lines []Line
}

// Equal compares two figures by their text. Two empty texts are not equal: a line without
// a measurement needs a reason, see Impossible.
func (s *Step) Equal(name string, expected, measured any) {
	l := Line{Step: s.Name, Name: name, Expected: fmt.Sprint(expected), Measured: fmt.Sprint(measured), Verdict: Different}
	if l.Expected == l.Measured && l.Measured != "" {
		l.Verdict = Same
	}
	s.Lines = append(s.Lines, l)
}

// AtMost holds a figure to a bound; both with the unit that format gives them. The figure
// is a time: it varies.
func (s *Step) AtMost(name, format string, bound, measured float64) {
	l := Line{Step: s.Name, Name: name, Expected: "≤ " + fmt.Sprintf(format, bound), Measured: fmt.Sprintf(format, measured),
		Verdict: Different, Varies: true}
	if measured <= bound { // false for NaN
		l.Verdict = Same
	}
	s.Lines = append(s.Lines, l)
}

// Record adds a figure without an expectation.
func (s *Step) Record(name string, measured any, varies bool) {
	s.Lines = append(s.Lines, Line{Step: s.Name, Name: name, Measured: fmt.Sprint(measured), Verdict: Recorded, Varies: varies})
}

// Impossible records that something could not be measured, and why.
func (s *Step) Impossible(name, why string) {
	s.Lines = append(s.Lines, Line{Step: s.Name, Name: name, Verdict: NotPossible, Why: why})
}

// WriteJSON writes the report, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteMarkdown writes the report as a table for each step.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# GPU kit\n\n")
	if r.IsSimulated {
		b.WriteString("**On the simulated driver: no line is about a GPU.**\n\n")
	}
	for _, key := range []string{"kernel", "processors", "driver", "devices", "kit"} {
		if text := r.Machine[key]; text != "" {
			fmt.Fprintf(&b, "- %s: %s\n", key, cell(text))
		}
	}
	fmt.Fprintf(&b, "\n%d same, %d different, %d not possible, %d recorded.\n",
		r.Count(Same), r.Count(Different), r.Count(NotPossible), r.Count(Recorded))
	step := ""
	for _, l := range r.Lines {
		if l.Step != step {
			step = l.Step
			fmt.Fprintf(&b, "\n## %s\n\n| | expected | measured | verdict |\n|---|---|---|---|\n", cell(step))
		}
		verdict := string(l.Verdict)
		if l.Why != "" {
			verdict += ": " + l.Why
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(l.Name), cell(l.Expected), cell(l.Measured), cell(verdict))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell is text that does not end a cell of a table or a line.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ").Replace(text)
}
