// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
	"github.com/gpu-gadgets/gpu-gadgets/test/support/subject"
)

// The administrator's configuration decides where an instance's data goes, and the last
// window is sent when the daemon is terminated.
func TestDaemonSendsWhereItsConfigurationSays(t *testing.T) {
	t.Parallel()
	pyro, address := startPyroscope(t), loopback.FreeAddress(t)
	n := newNode(t)
	n.configure(fmt.Sprintf(`
operator:
  export: {pyroscope-url: %q, export-interval: 5m, export-pid: true}
  metrics: {metrics-listen: %q, metrics-nvml: "off"}
`, pyro.url, address))
	n.start()
	require.NoError(t, n.create("cuda_alloc", nil))
	w := startSteps(t)
	n.waitAttached(w.PID())
	w.Do("alloc weights 4 %d", mib)
	eventually(t, "no metrics", func() bool {
		v, _ := loopback.Sum(t, address, "gpu_memory_inuse_bytes", fmt.Sprintf(`process_pid="%d"`, w.PID()))
		return v == 4*mib
	})
	label := fmt.Sprint("pid=", w.PID())
	require.Empty(t, pyro.stored("cuda_alloc", label), "the window is not over")
	n.stop()
	require.Equal(t, map[string]uint64{subject.Frame(t, "weights"): 4 * mib}, sums(pyro.stored("cuda_alloc", label), "alloc_space"))
}

// Users who may run gadgets may not have the node's data sent to their own address, read
// files of the node as secrets, or publish metrics of filtered rows.
func TestClientsDoNotChooseWhereDataGoes(t *testing.T) {
	t.Parallel()
	ours, theirs, address := startPyroscope(t), startPyroscope(t), loopback.FreeAddress(t)
	n := newNode(t)
	n.configure(fmt.Sprintf(`
operator:
  export: {pyroscope-url: %q, export-interval: 1s, export-pid: true}
  metrics: {metrics-listen: %q, metrics-nvml: "off"}
  oci: {verify-image: false}
`, ours.url, address))
	n.start()

	require.NoError(t, n.create("cuda_alloc", map[string]string{
		"operator.export.pyroscope-url": theirs.url, "operator.export.pyroscope-token-file": "/etc/shadow"}))
	var state *api.GadgetInstanceState
	eventually(t, "the instance is not refused", func() bool {
		state = n.state()
		return state.Status == api.GadgetInstanceStatus_StatusError
	})
	require.Contains(t, state.Message, "operator.export.pyroscope-token-file is in the daemon's configuration only")

	// An interactive run of a client; it can only use the images of the store.
	n.importImage()
	w := startSteps(t)
	_, err := n.interactive(t, map[string]string{"operator.export.pyroscope-url": theirs.url})
	require.ErrorContains(t, err, "operator.export.pyroscope-url is in the daemon's configuration only")

	_, err = n.interactive(t, map[string]string{"operator.sink.pprof-out": "/etc/cron.d/x"})
	require.ErrorContains(t, err, "operator.sink.pprof-out: a daemon writes no files for its clients")

	// Without them it runs, for the client only.
	ended := make(chan int)
	go func() {
		packets, err := n.interactive(t, map[string]string{})
		if err != nil {
			t.Errorf("run: %v", err)
		}
		ended <- packets
	}()
	isPublished, packets := false, 0
	for packets == 0 {
		w.Do("alloc weights 1 4096")
		_, found := loopback.Sum(t, address, "gpu_memory_allocated_bytes_total")
		isPublished = isPublished || found
		select {
		case packets = <-ended:
			require.Positive(t, packets, "the client got nothing")
		case <-time.After(100 * time.Millisecond):
		}
	}
	require.False(t, isPublished, "metrics of a client's own run")
	require.Empty(t, theirs.stored("cuda_alloc"))
	require.Empty(t, ours.stored("cuda_alloc"))
}

// interactive runs the gadget for a moment as kubectl gadget run does, and returns how
// many packets came.
func (n *node) interactive(t *testing.T, values map[string]string) (packets int, err error) {
	values["operator.LocalManager.host"] = "true"
	values["operator.oci.pull"] = "never"
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	stream, err := api.NewGadgetManagerClient(n.dial()).RunGadget(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&api.GadgetControlRequest{Event: &api.GadgetControlRequest_RunRequest{RunRequest: &api.GadgetRunRequest{
		ImageName: "ghcr.io/gpu-gadgets/cuda_alloc:latest", ParamValues: values,
		Version: api.VersionGadgetRunProtocol, Timeout: int64(3 * time.Second),
	}}}); err != nil {
		return 0, err
	}
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return packets, nil
		}
		if err != nil {
			return packets, err
		}
		if event.Type == api.EventTypeGadgetPayload {
			packets++
		}
	}
}

func TestMistakesInTheConfigurationEndTheDaemon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ config, want string }{
		{"operator: {export: {pyroscop-url: http://127.0.0.1:1}}", "operator.export.pyroscop-url is no parameter of the daemon (it has "},
		{"operator: {export: {pyroscope-url: ftp://127.0.0.1:1}}", "--pyroscope-url: "},
		{"operator: {reap: {often: true}}", "operator.reap.often is no parameter of the daemon (there is none)"},
	} {
		n := newNode(t)
		n.configure(c.config)
		p := n.launch()
		select {
		case <-p.done:
		case <-time.After(waitLimit):
			require.Fail(t, "the daemon serves with "+c.config, p.output())
		}
		require.Equal(t, 1, p.cmd.ProcessState.ExitCode())
		require.Contains(t, p.output(), c.want)
		require.True(t, strings.HasPrefix(p.output(), "Error: ") || strings.Contains(p.output(), "\nError: "), p.output())
	}
}
