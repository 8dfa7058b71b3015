// SPDX-License-Identifier: Apache-2.0

// Command times measures the cost of tests. As the -exec of go test it runs one test binary
// and adds a line with its processor time to a file, including every program that the tests
// waited for:
//
//	go test -exec "build/times -log $PWD/build/times.jsonl" ./test/...
//
// With -name it runs any command, such as the whole of make test, and logs it by that name.
//
// With -readme it writes the newest line of each package into a table of that file, between
// the two comments that mark it; -before is a log of an earlier state to compare with.
// Processor time hardly depends on other load on the
// machine; wall time does, and is shown because it includes waits.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cost is one run of the tests of a package; a line of the log.
type cost struct {
	// Package is its folder, relative to the module's root, or the name of the command.
	Package string `json:"package"`
	// Processor is user and system time, of the test binary and the programs it waited for.
	Processor time.Duration `json:"processor_ns"`
	// Wall is the time by the clock.
	Wall time.Duration `json:"wall_ns"`
}

func main() {
	log := flag.String("log", "", "file that the line is added to")
	name := flag.String("name", "", "name of the command in the log (default: the folder, which is the package's)")
	before := flag.String("before", "", "log of an earlier state, for a column of the table")
	readme := flag.String("readme", "", "file whose table is renewed from the log")
	flag.Parse()
	if *readme != "" {
		if err := renew(*readme, *log, *before); err != nil {
			fmt.Fprintln(os.Stderr, "times:", err)
			os.Exit(1)
		}
		return
	}
	status, err := run(*log, *name, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "times:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

// run runs a command in its place and logs its cost. It returns the command's exit status.
func run(log, name string, command []string) (int, error) {
	if len(command) == 0 {
		return 0, errors.New("no command: this is for -exec of go test, or for -name")
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	began := time.Now()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return 0, fmt.Errorf("run %s: %w", command[0], err)
	}
	if name == "" {
		if name, err = here(); err != nil {
			return 0, err
		}
	}
	line := cost{
		Package:   name,
		Processor: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		Wall:      time.Since(began),
	}
	return max(cmd.ProcessState.ExitCode(), killed(cmd.ProcessState)), add(log, line)
}

// killed is the shell's exit status of a process that a signal ended; 0: none did.
func killed(state *os.ProcessState) int {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return 0
}

// here is the package under test: go test runs a binary in its folder.
func here() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for root := folder; root != "/"; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return filepath.Rel(root, folder)
		}
	}
	return "", fmt.Errorf("no go.mod above %s", folder)
}

// add appends a line. Test binaries that run side by side share the file.
func add(log string, line cost) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(text, '\n')); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

func parseFile(name string) ([]cost, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(f)
}

// parse reads a log: the newest line of each package, the most expensive package first.
func parse(r io.Reader) ([]cost, error) {
	newest := map[string]cost{}
	for lines := json.NewDecoder(r); ; {
		var line cost
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read the log: %w", err)
		}
		newest[line.Package] = line
	}
	var all []cost
	for _, c := range newest {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b cost) int {
		return cmp.Or(cmp.Compare(b.Processor, a.Processor), cmp.Compare(a.Package, b.Package))
	})
	return all, nil
}

const (
	// floor is the processor time below which packages share a row.
	floor = 2 * time.Second
	// whole is the name of a run of all tests, builds included.
	whole = "make test"
)

// table returns the packages with a relevant cost, as Markdown, and what the whole run
// needed besides them. A package that is missing in one of the logs has no number there.
func table(all, before []cost) string {
	var b strings.Builder
	earlier := map[string]cost{}
	for _, c := range before {
		earlier[c.Package] = c
	}
	total, isWhole := cost{}, false
	var sum, rest, sumBefore, restBefore cost
	n := 0
	b.WriteString("| package | processor time before, s | processor time, s | by the clock, s |\n|---|--:|--:|--:|\n")
	row := func(name string, before, c cost) {
		fmt.Fprintf(&b, "| %s | %s | %.0f | %.0f |\n", name, seconds(before.Processor), c.Processor.Seconds(), c.Wall.Seconds())
	}
	for _, c := range all {
		if c.Package == whole {
			total, isWhole = c, true
			continue
		}
		old := earlier[c.Package]
		sum, sumBefore = sum.plus(c), sumBefore.plus(old)
		if c.Processor < floor {
			rest, restBefore = rest.plus(c), restBefore.plus(old)
			n++
			continue
		}
		row("`"+c.Package+"`", old, c)
	}
	if n > 0 {
		row(fmt.Sprintf("%d others, each below %.0f s", n, floor.Seconds()), restBefore, rest)
	}
	row("**these packages**", sumBefore, sum)
	if isWhole {
		builds := cost{Processor: total.Processor - sum.Processor}
		old := cost{}
		if w, ok := earlier[whole]; ok {
			old.Processor = w.Processor - sumBefore.Processor
		}
		fmt.Fprintf(&b, "| builds, and the packages that need no root | %s | %.0f | |\n", seconds(old.Processor), builds.Processor.Seconds())
		row("**`"+whole+"`**", earlier[whole], total)
	}
	return b.String()
}

func (c cost) plus(d cost) cost {
	return cost{Package: c.Package, Processor: c.Processor + d.Processor, Wall: c.Wall + d.Wall}
}

// seconds is empty for a time that is unknown.
func seconds(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", d.Seconds())
}

const begin, end = "<!-- times: begin -->\n", "<!-- times: end -->\n"

// renew replaces the table in a file with one of the log. There may be no log of before.
func renew(readme, log, before string) error {
	all, err := parseFile(log)
	if err != nil {
		return err
	}
	var old []cost
	if before != "" {
		if old, err = parseFile(before); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	above, after, found := bytes.Cut(text, []byte(begin))
	_, after, closed := bytes.Cut(after, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s: no place for the table: %q and %q", readme, begin, end)
	}
	return os.WriteFile(readme, fmt.Appendf(nil, "%s%s%s%s%s", above, begin, table(all, old), end, after), 0o644)
}
