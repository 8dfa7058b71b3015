// SPDX-License-Identifier: Apache-2.0

// Package daemon tests the daemon and gpu-exporter as they are deployed: separate
// processes that communicate by Inspektor Gadget's API, workloads on the simulated
// driver, and receivers in this process. The truth is the driver's journal.
package daemon

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/bpftest"
)

// waitLimit is how long a condition may take on a busy machine.
const waitLimit = 3 * time.Minute

const instanceID = "0123456789abcdef0123456789abcdef"

// process is a program that runs until it is terminated.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func start(t testing.TB, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the exit code is checked by the caller that ends it
		close(p.done)
	}()
	t.Cleanup(func() {
		select {
		case <-p.done:
		default:
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		for _, sign := range []string{"panic: ", "goroutine "} {
			if strings.Contains(p.output(), sign) {
				t.Errorf("%s crashed", p.cmd)
			}
		}
		if t.Failed() {
			t.Logf("%s:\n%s", p.cmd, p.output())
		}
	})
	return p
}

// end terminates it like the kubelet.
func (p *process) end() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(waitLimit):
		require.Fail(p.t, "it does not end", p.output())
	}
	require.Zero(p.t, p.cmd.ProcessState.ExitCode(), p.output())
}

// dump ends a process that hangs, with the stacks of its goroutines in its output.
func (p *process) dump() {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(waitLimit):
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !holds(); {
		require.True(t, time.Now().Before(deadline), "waited %v: %s", waitLimit, what)
		time.Sleep(50 * time.Millisecond)
	}
}

// node is a machine of the test: a daemon with an image store of its own.
type node struct {
	t              testing.TB
	socket, config string
	dir            string
	daemon         *process
}

func newNode(t testing.TB) *node {
	t.Helper()
	bpftest.RequireRoot(t)
	dir := t.TempDir()
	return &node{t: t, dir: dir, socket: filepath.Join(dir, "ig.sock"), config: filepath.Join(dir, "config.yaml")}
}

// configure writes the administrator's configuration.
func (n *node) configure(yaml string) {
	n.t.Helper()
	require.NoError(n.t, os.WriteFile(n.config, []byte(yaml), 0o600))
}

// launch starts the daemon, which keeps its instances in /var/lib/ig. The shell becomes
// the daemon.
func (n *node) launch() *process {
	n.t.Helper()
	if _, err := os.Stat(n.config); err != nil {
		n.configure("{}\n")
	}
	return n.inStore(program(n.t), "--config", n.config, "daemon", "-H", "unix://"+n.socket)
}

func program(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("../../../bin/ig-gpu")
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "run make build")
	return path
}

// inStore starts a command that sees the node's own /var/lib/ig.
func (n *node) inStore(command ...string) *process {
	n.t.Helper()
	store := filepath.Join(n.dir, "store")
	require.NoError(n.t, os.MkdirAll(store, 0o755))
	return start(n.t, "unshare", append([]string{"-m", "sh", "-ec",
		`mkdir -p /var/lib/ig; mount --bind "$1" /var/lib/ig; shift; exec "$@"`, "sh", store}, command...)...)
}

// importImage puts the gadget's image into the node's store.
func (n *node) importImage() {
	n.t.Helper()
	p := n.inStore(program(n.t), "image", "import", "../../../build/images/cuda_alloc.tar")
	<-p.done
	require.Zero(n.t, p.cmd.ProcessState.ExitCode(), p.output())
}

func (n *node) start() {
	n.t.Helper()
	n.daemon = n.launch()
	n.waitListening()
}

func (n *node) waitListening() {
	n.t.Helper()
	eventually(n.t, "the daemon does not listen", func() bool {
		connection, err := net.Dial("unix", n.socket)
		if err == nil {
			connection.Close()
		}
		return err == nil
	})
}

func (n *node) stop() {
	n.t.Helper()
	n.daemon.end()
}

func (n *node) dial() *grpc.ClientConn {
	n.t.Helper()
	connection := n.connect()
	n.t.Cleanup(func() { connection.Close() })
	return connection
}

// connect leaves it to the caller to close the connection.
func (n *node) connect() *grpc.ClientConn {
	n.t.Helper()
	connection, err := grpc.NewClient("unix://"+n.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(n.t, err)
	return connection
}

// create makes a gadget instance.
func (n *node) create(image string, values map[string]string) error {
	n.t.Helper()
	if values == nil {
		values = map[string]string{}
	}
	values["operator.LocalManager.host"] = "true"
	ctx, cancel := context.WithTimeout(n.t.Context(), waitLimit)
	defer cancel()
	_, err := api.NewGadgetInstanceManagerClient(n.dial()).CreateGadgetInstance(ctx, &api.CreateGadgetInstanceRequest{
		GadgetInstance: &api.GadgetInstance{Id: instanceID, Name: "memory", GadgetConfig: &api.GadgetRunRequest{
			ImageName: image, ParamValues: values, Version: api.VersionGadgetRunProtocol,
		}},
	})
	return err
}

func (n *node) state() *api.GadgetInstanceState {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), waitLimit)
	defer cancel()
	answer, err := api.NewGadgetInstanceManagerClient(n.dial()).ListGadgetInstances(ctx, &api.ListGadgetInstancesRequest{})
	require.NoError(n.t, err)
	require.Len(n.t, answer.GadgetInstances, 1)
	return answer.GadgetInstances[0].State
}

// requireEnded: the request is over because its context is. The other side may notice
// first, and reports it in one of several ways.
func requireEnded(t testing.TB, ctx context.Context, err error) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
		require.NoError(t, err)
	}
}

// packets returns the first packets of a table that arrive within a time after attaching, at
// most so many: their bytes per row.
func (n *node) packets(table string, within time.Duration, most int) (rowBytes []int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), within)
	defer cancel()
	client := api.NewGadgetManagerClient(n.dial())
	stream, err := client.RunGadget(ctx)
	require.NoError(n.t, err)
	require.NoError(n.t, stream.Send(&api.GadgetControlRequest{Event: &api.GadgetControlRequest_AttachRequest{
		AttachRequest: &api.GadgetAttachRequest{Id: instanceID, Version: api.VersionGadgetRunProtocol}}}))
	id := uint32(1 << 31)
	for len(rowBytes) < most {
		event, err := stream.Recv()
		if err != nil {
			requireEnded(n.t, ctx, err)
			return rowBytes
		}
		switch event.Type {
		case api.EventTypeGadgetInfo:
			info := &api.GadgetInfo{}
			require.NoError(n.t, proto.Unmarshal(event.Payload, info))
			for _, ds := range info.DataSources {
				if ds.Name == table {
					id = ds.Id
				}
			}
		case api.EventTypeGadgetPayload:
			if event.DataSourceID == id {
				rows := &api.GadgetDataArray{}
				require.NoError(n.t, proto.Unmarshal(event.Payload, rows))
				rowBytes = append(rowBytes, len(event.Payload)/max(1, len(rows.DataArray)))
			}
		}
	}
	return rowBytes
}

// remove deletes the instance.
func (n *node) remove() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), waitLimit)
	defer cancel()
	_, err := api.NewGadgetInstanceManagerClient(n.dial()).RemoveGadgetInstance(ctx, &api.GadgetInstanceId{Id: instanceID})
	require.NoError(n.t, err)
}

// payloads attaches to the instance, until see returns false or the context ends, and
// reports whether it was see.
func (n *node) payloads(ctx context.Context, name string, see func(datasource.DataSource, []byte) bool) bool {
	n.t.Helper()
	connection := n.connect()
	defer connection.Close()
	stream, err := api.NewGadgetManagerClient(connection).RunGadget(ctx)
	if err != nil {
		requireEnded(n.t, ctx, err)
		return false
	}
	require.NoError(n.t, stream.Send(&api.GadgetControlRequest{Event: &api.GadgetControlRequest_AttachRequest{
		AttachRequest: &api.GadgetAttachRequest{Id: instanceID, Version: api.VersionGadgetRunProtocol}}}))
	var source datasource.DataSource
	var id uint32
	for {
		event, err := stream.Recv()
		if err != nil {
			requireEnded(n.t, ctx, err)
			return false
		}
		switch event.Type {
		case api.EventTypeGadgetInfo:
			info := &api.GadgetInfo{}
			require.NoError(n.t, proto.Unmarshal(event.Payload, info))
			for _, ds := range info.DataSources {
				if ds.Name == name {
					id = ds.Id
					source, err = datasource.NewFromAPI(ds)
					require.NoError(n.t, err)
				}
			}
			require.NotNil(n.t, source, name)
		case api.EventTypeGadgetPayload:
			if event.DataSourceID == id && source != nil && !see(source, event.Payload) {
				return true
			}
		}
	}
}

// tables reads those of a data source.
func (n *node) tables(ctx context.Context, name string, see func(datasource.DataSource, datasource.PacketArray) bool) {
	n.t.Helper()
	n.payloads(ctx, name, func(ds datasource.DataSource, payload []byte) bool {
		rows, err := ds.NewPacketArrayFromRaw(payload)
		require.NoError(n.t, err)
		return see(ds, rows)
	})
}

// waitAttached reads the instance's attachments until a process is traced.
func (n *node) waitAttached(pid int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), waitLimit)
	defer cancel()
	connection := n.connect()
	defer connection.Close()
	_, err := api.NewGadgetManagerClient(connection).GetGadgetInfo(ctx, &api.GetGadgetInfoRequest{
		ImageName: instanceID, Version: api.VersionGadgetInfo, Flags: api.GadgetInfoRequestFlagUseInstance})
	require.NoError(n.t, err)
	found := n.payloads(ctx, "attachments", func(ds datasource.DataSource, payload []byte) bool {
		d, err := ds.NewPacketSingleFromRaw(payload)
		require.NoError(n.t, err)
		state, _ := ds.GetField("status").String(d)
		of, _ := ds.GetField("pid").Uint32(d)
		return of != uint32(pid) || state != "attached"
	})
	require.True(n.t, found, "process %d is not attached to", pid)
}
