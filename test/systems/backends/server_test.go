// SPDX-License-Identifier: Apache-2.0

// Package backends runs bin/ig-gpu against real servers on loopback and queries the
// stored data. An answer of OK proves nothing: a server with another version of a
// protocol can accept everything and store nothing. `make test-backends` builds the
// servers first, which takes minutes once.
package backends

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	pprof "github.com/google/pprof/profile"
	querierv1 "github.com/grafana/pyroscope/api/gen/proto/go/querier/v1"
	"github.com/grafana/pyroscope/api/gen/proto/go/querier/v1/querierv1connect"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

const waitLimit = time.Minute

// built is a program that the Makefile makes.
func built(t *testing.T, path string) string {
	t.Helper()
	if os.Getenv("BACKENDS") == "" {
		t.Skip("BACKENDS is not set: make test-backends does, because it takes a minute and a server")
	}
	abs, err := filepath.Abs("../../../" + path)
	require.NoError(t, err)
	_, err = os.Stat(abs)
	require.NoError(t, err, "make test-backends builds it")
	return abs
}

// pyroscope is a real server.
type pyroscope struct {
	URL string
	querierv1connect.QuerierServiceClient

	program, dir string
	flags        []string
	port         int
	cmd          *exec.Cmd
}

func startPyroscope(t *testing.T, flags ...string) *pyroscope {
	t.Helper()
	p := &pyroscope{program: built(t, "build/backends/pyroscope"), flags: flags, dir: t.TempDir(), port: loopback.FreePort(t)}
	p.URL = fmt.Sprintf("http://127.0.0.1:%d", p.port)
	p.QuerierServiceClient = querierv1connect.NewQuerierServiceClient(http.DefaultClient, p.URL)
	p.start(t)
	t.Cleanup(func() { p.stop(t) })
	return p
}

// start also restarts it, with its stored data.
func (p *pyroscope) start(t *testing.T) {
	t.Helper()
	config, err := filepath.Abs("pyroscope/pyroscope.yaml")
	require.NoError(t, err)
	args := []string{
		"-config.file=" + config, "-server.http-listen-address=127.0.0.1", fmt.Sprintf("-server.http-listen-port=%d", p.port),
		"-server.grpc-listen-address=127.0.0.1", fmt.Sprintf("-server.grpc-listen-port=%d", loopback.FreePort(t)),
		"-memberlist.bind-addr=127.0.0.1", fmt.Sprintf("-memberlist.bind-port=%d", loopback.FreePort(t)),
		"-storage.filesystem.dir=" + filepath.Join(p.dir, "shared"), "-pyroscopedb.data-path=" + filepath.Join(p.dir, "data"),
		"-compactor.data-dir=" + filepath.Join(p.dir, "compactor"), "-blocks-storage.bucket-store.sync-dir=" + filepath.Join(p.dir, "sync"),
		"-ingester.min-ready-duration=0s",
	}
	// It advertises the host's address, where it does not listen.
	for _, flag := range []string{
		"ingester.lifecycler.addr", "distributor.ring.instance-addr", "query-frontend.instance-addr", "query-scheduler.ring.instance-addr",
		"compactor.ring.instance-addr", "store-gateway.sharding-ring.instance-addr", "overrides-exporter.ring.instance-addr",
	} {
		args = append(args, "-"+flag+"=127.0.0.1")
	}
	p.cmd = exec.Command(p.program, append(args, p.flags...)...)
	p.cmd.Dir = p.dir
	var out bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &out, &out
	require.NoError(t, p.cmd.Start())
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if response, err := http.Get(p.URL + "/ready"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				t.Logf("Pyroscope was ready after %v", time.Since(began).Round(100*time.Millisecond))
				return
			}
		}
		if time.Since(began) > waitLimit {
			p.stop(t)
			tail := out.Bytes()
			require.Fail(t, "Pyroscope does not get ready", "%s", tail[max(0, len(tail)-4000):])
		}
	}
}

func (p *pyroscope) stop(t *testing.T) {
	t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Signal(os.Interrupt)
	killer := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer killer.Stop()
	_ = p.cmd.Wait()
}

// stored returns one profile type within a selector, over all time so far.
func (p *pyroscope) stored(t *testing.T, profileType, selector string) *pprof.Profile {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	nodes := int64(1 << 20)
	answer, err := p.SelectMergeProfile(ctx, connect.NewRequest(&querierv1.SelectMergeProfileRequest{ //nolint:staticcheck // the API of Grafana's data source, which older servers have, too
		ProfileTypeID: profileType, LabelSelector: selector, MaxNodes: &nodes,
		Start: time.Now().Add(-time.Hour).UnixMilli(), End: time.Now().Add(time.Minute).UnixMilli(),
	}))
	require.NoError(t, err)
	raw, err := answer.Msg.MarshalVT()
	require.NoError(t, err)
	profile, err := pprof.ParseUncompressed(raw)
	require.NoError(t, err)
	require.Len(t, profile.SampleType, 1)
	return profile
}

func (p *pyroscope) types(t *testing.T) (ids []string) {
	t.Helper()
	answer, err := p.ProfileTypes(t.Context(), connect.NewRequest(&querierv1.ProfileTypesRequest{
		Start: time.Now().Add(-time.Hour).UnixMilli(), End: time.Now().Add(time.Minute).UnixMilli(),
	}))
	require.NoError(t, err)
	for _, one := range answer.Msg.ProfileTypes {
		ids = append(ids, one.ID)
	}
	slices.Sort(ids)
	return ids
}

// labels of the series of a selector, one text each.
func (p *pyroscope) series(t *testing.T, selector string) (all []string) {
	t.Helper()
	answer, err := p.Series(t.Context(), connect.NewRequest(&querierv1.SeriesRequest{
		Matchers: []string{selector}, Start: time.Now().Add(-time.Hour).UnixMilli(), End: time.Now().Add(time.Minute).UnixMilli(),
	}))
	require.NoError(t, err)
	for _, set := range answer.Msg.LabelsSet {
		var labels []string
		for _, l := range set.Labels {
			if !strings.HasPrefix(l.Name, "__") || l.Name == "__profile_type__" {
				labels = append(labels, l.Name+"="+l.Value)
			}
		}
		all = append(all, strings.Join(labels, " "))
	}
	slices.Sort(all)
	return all
}
