// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/stretchr/testify/require"
)

// Inspektor Gadget v0.55.0 ends with a nil pointer there.
func TestAttachingTooEarlyDoesNotEndTheDaemon(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	require.NoError(t, n.create("cuda_alloc", map[string]string{"operator.export.pyroscope-url": "http://127.0.0.1:1"}))
	eventually(t, "the instance is not refused", func() bool { return n.state().Status == api.GadgetInstanceStatus_StatusError })
	stream, err := api.NewGadgetManagerClient(n.dial()).RunGadget(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&api.GadgetControlRequest{Event: &api.GadgetControlRequest_AttachRequest{
		AttachRequest: &api.GadgetAttachRequest{Id: instanceID, Version: api.VersionGadgetRunProtocol}}}))
	_, err = stream.Recv()
	require.ErrorContains(t, err, "cannot attach to an instance that has not started")
	n.stop()
}

// Inspektor Gadget stores a thousand old tables for future clients.
func TestTablesAreNotKeptWithoutClients(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	// Other programs on this machine may have rows of any size.
	require.NoError(t, n.create("cuda_alloc", map[string]string{"operator.attach.pid": strconv.Itoa(os.Getpid())}))
	w := startSteps(t)
	n.waitAttached(w.PID()) // a client, for a moment
	for _, function := range []string{"weights", "kv_cache", "encoder_cache", "activations", "logits", "workspace", "staging"} {
		w.Do("alloc %s 1 4096", function)
	}
	time.Sleep(6 * time.Second) // as many tables, without a client
	require.LessOrEqual(t, len(n.packets("allocs", 900*time.Millisecond, 4)), 3, "of the first client's time, and one")
	rows := n.packets("allocs", waitLimit, 3)
	require.Len(t, rows, 3, "a client gets one each second")
	t.Logf("%d bytes for each row", rows[len(rows)-1])
}
