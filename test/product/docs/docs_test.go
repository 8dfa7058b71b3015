// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

const (
	root = "../../.."

	// longest is how long a block may take before it counts as hung.
	longest = 3 * time.Minute
)

// pages are those whose commands are run: what a new user copies. docs/guides/kubernetes.md
// needs a cluster, and test/systems/k8s runs it.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs/guides/*.md"))
	require.NoError(t, err)
	out := []string{"README.md"}
	for _, page := range found {
		if filepath.Base(page) != "kubernetes.md" {
			out = append(out, filepath.Join("docs/guides", filepath.Base(page)))
		}
	}
	require.Greater(t, len(out), 4, "the guides are gone")
	return out
}

// TestCommandsMatchTheirOutputOnThePage runs every block of commands of the pages. A block fails when
// its shell ends with an error, or when it does not print the lines that the page shows.
func TestCommandsMatchTheirOutputOnThePage(t *testing.T) {
	bpftest.RequireRoot(t)
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, page))
			require.NoError(t, err)
			blocks, err := parse(string(text))
			require.NoError(t, err, page)
			sh := startShell(t)
			for _, b := range blocks {
				if b.skipped != "" {
					t.Logf("%s:%d: not run: %s", page, b.line, b.skipped)
					continue
				}
				printed, err := sh.run(b.script)
				require.NoError(t, err, "%s:%d:\n%s\nprinted:\n%s", page, b.line, b.script, printed)
				if line := missing(b.output, printed); line != "" {
					t.Fatalf("%s:%d: the output has no line like\n%s\nprinted:\n%s", page, b.line, line, printed)
				}
			}
		})
	}
}

// shell is a bash that keeps its variables and jobs from block to block.
type shell struct {
	in     io.Writer
	lines  chan string
	blocks int
}

// startShell starts bash in the repository's root with bin/ in PATH. Its children are
// killed at the end of the test. Its environment has no OUT, which pages set: make would build
// the simulated libraries there, again for each page.
func startShell(t *testing.T) *shell {
	t.Helper()
	cmd := exec.Command("bash")
	dir, err := filepath.Abs(root)
	require.NoError(t, err)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+dir+"/bin:"+os.Getenv("PATH"), "NO_COLOR=1", "COLUMNS=100", "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, write, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = write, write
	require.NoError(t, cmd.Start())
	write.Close()
	s := &shell{in: in, lines: make(chan string, 1024)}
	go func() {
		defer close(s.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if line != "" {
				s.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	// The pages use sudo; the test is root already, and sudo may not be installed.
	fmt.Fprintln(in, `sudo() { "$@"; }; set -o pipefail`)
	t.Cleanup(func() {
		fmt.Fprintln(in, `kill $(jobs -p) 2>/dev/null; exit`)
		done := make(chan struct{})
		go func() { _ = cmd.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
		}
		out.Close()
	})
	return s
}

// run runs a block and returns what it printed. Each command must succeed, except those in
// the background.
func (s *shell) run(script string) (string, error) {
	s.blocks++
	mark := fmt.Sprintf("end of block %d", s.blocks)
	// In a function of its own, so that a failing command ends the block and not the shell.
	fmt.Fprintf(s.in, "trap 'failed=$?' ERR; failed=0\n%s\ntrap - ERR\nprintf '\\n%s: %%d\\n' $failed\n", script, mark)
	var printed strings.Builder
	deadline := time.After(longest)
	for {
		select {
		case line, open := <-s.lines:
			if !open {
				return printed.String(), fmt.Errorf("the shell ended")
			}
			if status, ended := strings.CutPrefix(line, mark+": "); ended {
				if status = strings.TrimSpace(status); status != "0" {
					return printed.String(), fmt.Errorf("a command ended with status %s", status)
				}
				return printed.String(), nil
			}
			printed.WriteString(line)
		case <-deadline:
			return printed.String(), fmt.Errorf("nothing more after %v", longest)
		}
	}
}
