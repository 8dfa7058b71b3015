// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

// needRoot skips where probes cannot be attached.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("attaching needs root; the uid is not 0")
	}
}

// run runs a command that has to succeed.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

func clang(t testing.TB) string {
	for _, name := range []string{os.Getenv("CLANG"), "clang", "clang-19", "clang-18", "clang-16"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Fatal("no clang in PATH: set CLANG")
	return ""
}

// kernel are the test's own eBPF programs.
type kernel struct {
	*ebpf.Collection
	programs Programs
}

var compiled = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tracer-test")
	return filepath.Join(dir, "count.bpf.o"), err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := compiled(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func spec(t testing.TB) *ebpf.CollectionSpec {
	t.Helper()
	object, err := compiled()
	require.NoError(t, err)
	if _, err := os.Stat(object); err != nil {
		arch := map[bool]string{true: "/usr/include/x86_64-linux-gnu", false: "/usr/include/aarch64-linux-gnu"}
		_, err := os.Stat(arch[true])
		run(t, clang(t), "-target", "bpf", "-O2", "-g", "-Wall", "-I"+arch[err == nil], "-c", "testdata/count.bpf.c", "-o", object)
	}
	s, err := ebpf.LoadCollectionSpec(object)
	require.NoError(t, err)
	return s
}

func load(t testing.TB) *kernel {
	t.Helper()
	needRoot(t)
	c, err := ebpf.NewCollection(spec(t))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	p := c.Programs
	return &kernel{c, Programs{
		Enter: p["enter"], Exit: p["leave"], EnterMulti: p["enter_multi"], ExitMulti: p["leave_multi"],
	}}
}

// calls returns how often the probe with that cookie saw a call and a return.
func (k *kernel) calls(t testing.TB, cookie uint32) (enters, exits int) {
	t.Helper()
	var a, b uint64
	require.NoError(t, k.Maps["calls_by_cookie"].Lookup(cookie, &a))
	require.NoError(t, k.Maps["calls_by_cookie"].Lookup(cookie+256, &b))
	return int(a), int(b)
}

// testPoints are the functions of the library that buildLibrary makes. No test of another
// package has a library of its name: these tests probe all processes, and packages are tested
// side by side.
var testPoints = []Point{
	{Library: "libtracertest", Symbol: "gpuAlloc", Cookie: 1, Exit: true},
	{Library: "libtracertest", Symbol: "gpuFree", Cookie: 2},
	{Library: "libtracertest", Symbol: "gpuFreeAlias", Cookie: 3},
	{Library: "libtracertest", Symbol: "gpuAbsent", Cookie: 4},
}

// buildLibrary builds libtracertest.so.1 in a new folder below dir. The functions
// have the shape of libcuda's entries: a comparison, then a conditional jump.
func buildLibrary(t testing.TB, dir string) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "lib.c")
	require.NoError(t, os.WriteFile(source, []byte(`
volatile int ready = 256;
int gpuAlloc(void *p, unsigned long n) { if (ready == 256) return 100; return (int)n; }
int gpuFree(void *p, unsigned long n) { return ready; }
__attribute__((alias("gpuFree"))) int gpuFreeAlias(void *p, unsigned long n);
`), 0o644))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	path := filepath.Join(dir, "libtracertest.so.1")
	run(t, "gcc", "-O1", "-shared", "-fPIC", "-o", path, source)
	return path
}

// host is a running testdata/host.c.
type host struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	pid uint32
}

var hostBinary = sync.OnceValues(func() (string, error) {
	object, err := compiled()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(object), "host")
	out, err := exec.Command("gcc", "-O1", "-o", path, "testdata/host.c", "-ldl", "-pthread").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func startHost(t testing.TB, env ...string) *host {
	t.Helper()
	path, err := hostBinary()
	require.NoError(t, err)
	h := &host{t: t, cmd: exec.Command(path)}
	h.cmd.Env = append(os.Environ(), env...)
	for _, e := range env {
		if root, ok := strings.CutPrefix(e, "CHROOT="); ok {
			h.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		}
	}
	h.cmd.Stderr = os.Stderr
	h.in, err = h.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := h.cmd.StdoutPipe()
	require.NoError(t, err)
	h.out = bufio.NewReader(out)
	require.NoError(t, h.cmd.Start())
	h.pid = uint32(h.cmd.Process.Pid)
	t.Cleanup(h.stop)
	return h
}

func (h *host) stop() {
	if h.cmd.ProcessState == nil {
		h.in.Close()
		_ = h.cmd.Wait()
	}
}

func (h *host) ask(format string, args ...any) int64 {
	h.t.Helper()
	_, err := fmt.Fprintf(h.in, format+"\n", args...)
	require.NoError(h.t, err)
	line, err := h.out.ReadString('\n')
	require.NoError(h.t, err)
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	require.NoError(h.t, err)
	require.GreaterOrEqual(h.t, n, int64(0), format, args)
	return n
}

// rows collects what a tracer reports.
type rows struct {
	mu  sync.Mutex
	all []Attachment
	at  []uint64
}

func (r *rows) report(a Attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, a)
	r.at = append(r.at, monotonic())
}

// wait returns the first row for which ok holds.
func (r *rows) wait(t testing.TB, what string, ok func(Attachment) bool) (Attachment, uint64) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		r.mu.Lock()
		for i, a := range r.all {
			if ok(a) {
				at := r.at[i]
				r.mu.Unlock()
				return a, at
			}
		}
		all := fmt.Sprintf("%+v", r.all)
		r.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("no row with %s in %s", what, all)
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *rows) attached(t testing.TB, pid uint32) (Attachment, uint64) {
	t.Helper()
	return r.wait(t, fmt.Sprintf("attached, pid %d", pid), func(a Attachment) bool {
		return a.PID == pid && a.Status == StatusAttached
	})
}

// start runs a tracer until the end of the test.
func start(t testing.TB, cfg Config) (*Tracer, *rows) {
	t.Helper()
	r := &rows{}
	cfg.Report = r.report
	if cfg.Points == nil {
		cfg.Points = testPoints
	}
	tr, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(tr.Stop)
	return tr, r
}

// startCommand starts a program that prints a line when it is ready and ends
// when its input does. It returns its pid.
func startCommand(t testing.TB, name string, args ...string) uint32 {
	t.Helper()
	cmd := exec.Command(name, args...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	return uint32(cmd.Process.Pid)
}

// lockThread ties the calling goroutine to a thread that ends with it.
func lockThread() { runtime.LockOSThread() }
