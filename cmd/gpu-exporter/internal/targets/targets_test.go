// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func TestAddressesNameTheirNodes(t *testing.T) {
	all, err := ParseAddresses([]string{"tcp://10.0.0.7:8080", "node-8=tcp://10.0.0.8:8080", "local=unix:///run/ig.sock", "tcp://[::1]:9"}, TLS{})
	require.NoError(t, err)
	var nodes []string
	for _, target := range all {
		nodes = append(nodes, target.Node)
	}
	require.Equal(t, []string{"10.0.0.7", "node-8", "local", "::1"}, nodes)
	for _, text := range []string{"", "10.0.0.7:8080", "tcp://10.0.0.7", "http://10.0.0.7:80", "unix://", "unix://x/y", "=tcp://1.2.3.4:5", "tcp://1.2.3.4:5/x", "tcp://a b:1"} {
		_, err := ParseAddresses([]string{text}, TLS{})
		require.ErrorContains(t, err, "is no address like", text)
	}
	_, err = ParseAddresses([]string{"tcp://a:1", "x=tcp://a:1"}, TLS{})
	require.ErrorContains(t, err, "twice")
	_, err = ParseAddresses([]string{"tcp://a:1"}, TLS{CAFile: "x"})
	require.ErrorContains(t, err, "TLS needs all of")
}

func TestUnixSocketsAreDialled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer listener.Close()
	all, err := ParseAddresses([]string{"unix://" + path}, TLS{})
	require.NoError(t, err)
	connection, err := all[0].Dial(t.Context())
	require.NoError(t, err)
	connection.Close()
}

// cluster is an API server that knows pods.
type cluster struct {
	t       *testing.T
	mu      sync.Mutex
	pods    []corev1.Pod
	watches []chan metav1.WatchEvent
}

func pod(name, node string, phase corev1.PodPhase) corev1.Pod {
	return corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "gadget", UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
	}
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/api/v1/namespaces/gadget/pods" || r.URL.Query().Get("labelSelector") != "k8s-app=gadget" {
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "pods is forbidden")
		return
	}
	if r.URL.Query().Get("watch") == "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: c.pods})
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		// As servers before 1.32 do: the client then lists.
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden")
		return
	}
	events := make(chan metav1.WatchEvent, 16)
	c.mu.Lock()
	c.watches = append(c.watches, events)
	c.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case e := <-events:
			_ = json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status: metav1.StatusFailure, Message: message, Reason: reason, Code: int32(code)})
}

func (c *cluster) emit(kind string, p corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	raw, err := json.Marshal(p)
	require.NoError(c.t, err)
	e := metav1.WatchEvent{Type: kind}
	e.Object.Raw = raw
	for _, w := range c.watches {
		w <- e
	}
}

func TestGadgetPodsAreFollowed(t *testing.T) {
	c := &cluster{t: t, pods: []corev1.Pod{pod("gadget-a", "node-a", corev1.PodRunning), pod("gadget-p", "node-p", corev1.PodPending)}}
	server := httptest.NewServer(c)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var nodes []string
	ended := make(chan error, 1)
	go func() {
		ended <- Kubernetes{Config: &rest.Config{Host: server.URL}}.Watch(ctx, func(all []Target) {
			mu.Lock()
			defer mu.Unlock()
			nodes = nil
			for _, target := range all {
				nodes = append(nodes, target.Node+" "+target.Key)
			}
		})
	}()
	are := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(nodes, want)
		}, 20*time.Second, 20*time.Millisecond, "%v", want)
	}
	are("node-a uid-gadget-a")
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.watches) > 0
	}, 20*time.Second, 10*time.Millisecond)
	c.emit("ADDED", pod("gadget-b", "node-b", corev1.PodRunning))
	are("node-a uid-gadget-a", "node-b uid-gadget-b")
	c.emit("MODIFIED", pod("gadget-p", "node-p", corev1.PodRunning))
	c.emit("DELETED", pod("gadget-a", "node-a", corev1.PodRunning))
	are("node-b uid-gadget-b", "node-p uid-gadget-p")
	cancel()
	require.NoError(t, <-ended)
}

func TestMissingRightsAreReportedAtOnce(t *testing.T) {
	server := httptest.NewServer(&cluster{t: t})
	defer server.Close()
	err := Kubernetes{Config: &rest.Config{Host: server.URL}, Namespace: "other"}.Watch(t.Context(), func([]Target) {})
	require.ErrorContains(t, err, "list the pods of namespace other: pods is forbidden")
}
