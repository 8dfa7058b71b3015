// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content/memory"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/ebpf"
	ocihandler "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/oci-handler"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/simple"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/ig/containers"
	"github.com/gpu-gadgets/gpu-gadgets/internal/tracer"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("attaching needs root; the uid is not 0")
	}
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
}

// image builds the tracer's test gadget into an image in memory.
func image(t testing.TB) *memory.Store {
	t.Helper()
	object := filepath.Join(t.TempDir(), "program.o")
	clang := os.Getenv("CLANG")
	for _, name := range []string{"clang", "clang-19"} {
		if path, err := exec.LookPath(name); clang == "" && err == nil {
			clang = path
		}
	}
	triplet := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	run(t, clang, "-target", "bpf", "-O2", "-g", "-I/usr/include/"+triplet+"-linux-gnu",
		"-c", "../../../internal/tracer/testdata/count.bpf.c", "-o", object)
	program, err := os.ReadFile(object)
	require.NoError(t, err)

	store := memory.New()
	push := func(mediaType string, b []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(b), Size: int64(len(b))}
		require.NoError(t, store.Push(t.Context(), d, strings.NewReader(string(b))))
		return d
	}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return b
	}
	manifest := ocispec.Manifest{
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    push("application/vnd.gadget.config.v1+yaml", []byte("name: test\n")),
		Layers:    []ocispec.Descriptor{push("application/vnd.gadget.ebpf.program.v1+binary", program)},
	}
	manifest.SchemaVersion = 2
	d := push(ocispec.MediaTypeImageManifest, encode(manifest))
	d.Platform = &ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{d}}
	index.SchemaVersion = 2
	d = push(ocispec.MediaTypeImageIndex, encode(index))
	require.NoError(t, store.Tag(t.Context(), d, "ghcr.io/inspektor-gadget/gadget/test:latest"))
	return store
}

// gadget runs the test gadget with our operator until the test ends.
type gadget struct {
	t      testing.TB
	mu     sync.Mutex
	rows   []string // as JSON
	calls  *ebpf.Map
	config interface{ GetString(string) string }
	stop   context.CancelFunc
	done   chan error
}

func runGadget(t testing.TB, values api.ParamValues) *gadget {
	t.Helper()
	g := &gadget{t: t, done: make(chan error, 1)}
	started := make(chan struct{})
	watch := simple.New("watch",
		simple.WithPriority(500),
		simple.OnInit(func(gc operators.GadgetContext) error {
			ds := gc.GetDataSources()[DataSource]
			if ds == nil {
				return fmt.Errorf("no data source %s", DataSource)
			}
			return ds.Subscribe(func(ds datasource.DataSource, data datasource.Data) error {
				row := map[string]any{}
				for _, name := range []string{"comm", "path", "status", "mode", "note", "error"} {
					row[name], _ = ds.GetField(name).String(data)
				}
				row["pid"], _ = ds.GetField("pid").Uint32(data)
				row["symbols"], _ = ds.GetField("symbols").Uint32(data)
				b, err := json.Marshal(row)
				g.mu.Lock()
				g.rows = append(g.rows, string(b))
				g.mu.Unlock()
				return err
			}, 100)
		}),
		simple.OnStart(func(gc operators.GadgetContext) error {
			m, err := ig.Map(gc, "calls_by_cookie")
			if err != nil {
				return err
			}
			if g.calls, err = m.Clone(); err != nil {
				return err
			}
			config, _ := gc.GetVar("config")
			g.config = config.(interface{ GetString(string) string })
			close(started)
			return nil
		}),
	)
	oci := ocihandler.OciHandler
	ctx, cancel := context.WithCancel(t.Context())
	g.stop = cancel
	gc := gadgetcontext.New(ctx, "test:latest",
		gadgetcontext.WithDataOperators(oci, New(Config{}), watch),
		gadgetcontext.WithOrasReadonlyTarget(image(t)))
	go func() { g.done <- gc.Run(values) }()
	select {
	case <-started:
	case err := <-g.done:
		g.done <- err
	case <-time.After(20 * time.Second):
		t.Fatal("gadget does not start")
	}
	t.Cleanup(func() {
		cancel()
		if g.calls != nil {
			<-g.done
			g.calls.Close()
		}
	})
	return g
}

func (g *gadget) count(key uint32) int {
	var n uint64
	require.NoError(g.t, g.calls.Lookup(key, &n))
	return int(n)
}

func (g *gadget) wait(what ...string) {
	g.t.Helper()
	ok := func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
	rows:
		for _, row := range g.rows {
			for _, w := range what {
				if !strings.Contains(row, w) {
					continue rows
				}
			}
			return true
		}
		return false
	}
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("no row with %v in %v", what, g.rows)
		}
	}
}

// caller is a process that calls the library on request.
type caller struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (c *caller) do(t testing.TB, format string, args ...any) {
	t.Helper()
	_, err := fmt.Fprintf(c.in, format+"\n", args...)
	require.NoError(t, err)
	line, err := c.out.ReadString('\n')
	require.NoError(t, err)
	require.NotContains(t, line, "-1")
}

func startCaller(t testing.TB, dir string) *caller {
	t.Helper()
	binary := filepath.Join(dir, "host")
	if _, err := os.Stat(binary); err != nil {
		run(t, "gcc", "-o", binary, "../../../internal/tracer/testdata/host.c", "-ldl")
	}
	cmd := exec.Command(binary)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	return &caller{cmd, in, bufio.NewReader(out)}
}

func library(t testing.TB, dir string) string {
	t.Helper()
	source, path := filepath.Join(dir, "lib.c"), filepath.Join(dir, "libgputest.so.1")
	require.NoError(t, os.WriteFile(source, []byte(
		"int gpuAlloc(void *p, long n) { return 0; }\nint gpuFree(void *p, long n) { return 0; }\n"), 0o644))
	run(t, "gcc", "-shared", "-fPIC", "-o", path, source)
	return path
}

func TestGadgetRunsThroughInspektorGadget(t *testing.T) {
	needRoot(t)
	for _, mode := range []string{"multi", "perf"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			lib := library(t, dir)
			c := startCaller(t, dir)
			c.do(t, "open %s", lib)
			g := runGadget(t, api.ParamValues{"operator.attach.attach-mode": mode})
			g.wait(lib, `"status":"attached"`, fmt.Sprintf(`"pid":%d`, c.cmd.Process.Pid),
				`"mode":"`+mode+`"`, `"symbols":2`)
			c.do(t, "call gpuAlloc 7")
			c.do(t, "call gpuFree 3")
			require.Equal(t, []int{7, 7, 3, 0}, []int{g.count(1), g.count(1 + 256), g.count(2), g.count(2 + 256)})
			for _, program := range []string{"enter_gpuAlloc", "exit_gpuAlloc", "enter_gpuFree"} {
				require.Equal(t, "gadget_program_disabled", g.config.GetString("programs."+program+".attach_to"))
			}
			g.stop()
			require.NoError(t, <-g.done)
			g.done <- nil
			c.do(t, "call gpuAlloc 5")
			require.Equal(t, 7, g.count(1), "detached")
		})
	}
}

func TestPIDRestrictsTheGadget(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	lib := library(t, dir)
	wanted, other := startCaller(t, dir), startCaller(t, dir)
	wanted.do(t, "open %s", lib)
	other.do(t, "open %s", lib)
	g := runGadget(t, api.ParamValues{"operator.attach.pid": fmt.Sprint(wanted.cmd.Process.Pid)})
	g.wait(`"status":"attached"`, fmt.Sprintf(`"pid":%d`, wanted.cmd.Process.Pid))
	wanted.do(t, "call gpuAlloc 4")
	other.do(t, "call gpuAlloc 100")
	require.Equal(t, 4, g.count(1))
	for _, row := range g.rows {
		require.NotContains(t, row, fmt.Sprintf(`"pid":%d`, other.cmd.Process.Pid))
	}
}

func TestWrongPIDIsAnError(t *testing.T) {
	needRoot(t)
	for value, text := range map[string]string{
		"4194303": "process 4194303: no such process",
		"0":       `"0" is not a process id`,
		"1,x":     `"x" is not a process id`,
	} {
		g := runGadget(t, api.ParamValues{"operator.attach.pid": value})
		err := <-g.done
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestOnlySelectedContainersAreVisible(t *testing.T) {
	i := &instance{}
	row := tracer.Attachment{MountNS: 7}
	require.True(t, i.visible(row), "without a container manager all are")
	i.filtered = true
	require.False(t, i.visible(row))
	c := &containers.Container{Mntns: 7}
	i.addContainer(c)
	require.True(t, i.visible(row))
	i.removeContainer(c)
	require.True(t, i.visible(row), "its processes are still going")
	i.selected[7] = time.Now().Add(-farewell)
	require.False(t, i.visible(row))
}

// Inspektor Gadget would hang on an error of Start.
func TestFailedStartEndsTheRunAndIsReturnedByStop(t *testing.T) {
	gc := gadgetcontext.New(t.Context(), "none")
	i := &instance{}
	require.NoError(t, i.Start(gc))
	require.ErrorIs(t, gc.Context().Err(), context.Canceled)
	require.ErrorContains(t, i.Stop(gc), "no functions to attach to")
	require.NoError(t, i.Close(gc), "reported once")
}
