// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// run is ig-gpu on a process with these flags, which ends by itself.
func run(t *testing.T, pid int, args ...string) (code int, stderr string) {
	t.Helper()
	var out safeBuffer
	cmd := exec.Command(built(t, "bin/ig-gpu"), append([]string{"run", "cuda_alloc", "--host", "--pid", fmt.Sprint(pid), "-o", "none"}, args...)...)
	cmd.Stderr = &out
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(waitLimit):
		_ = cmd.Process.Kill()
		<-ended
		require.Fail(t, "ig-gpu does not end", "%v: %s", args, out.String())
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// TestWrongParametersAreErrorsAtTheStart: one line with the parameter, the server's
// message and advice.
func TestWrongParametersAreErrorsAtTheStart(t *testing.T) {
	p := startPyroscope(t)
	tenants := startPyroscope(t, "-auth.multitenancy-enabled=true")
	guarded := startCollector(t, collectorOptions{token: "right"})
	plain := startCollector(t, collectorOptions{withoutProfiles: true})
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("wrong\n"), 0o600))
	w := startExample(t)
	for _, c := range []struct {
		flags []string
		want  []string
	}{
		{[]string{"--no-such-parameter", "1"}, []string{"unknown flag: --no-such-parameter"}},
		{[]string{"--pyroscope-url", "pyroscope:4040"}, []string{"--pyroscope-url", "want http://HOST[:PORT] or https://HOST[:PORT]", "pyroscope:4040"}},
		{[]string{"--pyroscope-url", "http://user:secret@127.0.0.1:1"}, []string{"--pyroscope-url", "can be read by every user"}},
		{[]string{"--pyroscope-url", p.URL + "/wrong"}, []string{"--pyroscope-url", "/wrong: 404 Not Found: is it the base URL of Pyroscope?"}},
		{[]string{"--pyroscope-url", tenants.URL}, []string{"--pyroscope-url " + tenants.URL, "401", "it requires a tenant, user or token"}},
		{[]string{"--pyroscope-url", "http://" + plain.HTTP}, []string{"--pyroscope-url", "404", "is it the base URL of Pyroscope?"}},
		{[]string{"--pyroscope-url", p.URL, "--pyroscope-token-file", token + ".none"}, []string{"--pyroscope-url", token + ".none", "no such file"}},
		{[]string{"--pyroscope-token-file", token}, []string{"--pyroscope-token-file needs --pyroscope-url"}},
		{[]string{"--pyroscope-url", p.URL, "--export-interval", "soon"}, []string{"--export-interval", "soon"}},
		{[]string{"--pyroscope-url", p.URL, "--export-queue-size", "5"}, []string{"--export-queue-size", "from 1MiB to 16GiB"}},
		{[]string{"--otlp-endpoint", "http://" + guarded.GRPC}, []string{"--otlp-endpoint", "Unauthenticated", "it requires other credentials"}},
		{[]string{"--otlp-endpoint", "http://" + guarded.GRPC, "--otlp-token-file", token}, []string{"--otlp-endpoint", "Unauthenticated", "other credentials"}},
		{[]string{"--otlp-endpoint", "http://" + guarded.HTTP, "--otlp-protocol", "http"}, []string{"--otlp-endpoint", "401 Unauthorized: missing or empty authorization header", "it requires other credentials"}},
		{[]string{"--otlp-endpoint", "http://" + plain.GRPC}, []string{"--otlp-endpoint", "does not take OTLP profiles", "--feature-gates=service.profilesSupport"}},
		{[]string{"--otlp-endpoint", "http://" + plain.HTTP, "--otlp-protocol", "http"}, []string{"--otlp-endpoint", "404", "--feature-gates=service.profilesSupport"}},
		{[]string{"--otlp-endpoint", "http://" + plain.GRPC, "--otlp-protocol", "udp"}, []string{"--otlp-protocol", "grpc, http"}},
		{[]string{"--metrics-listen", "9464"}, []string{"--metrics-listen", "127.0.0.1:9464"}},
		{[]string{"--metrics-otlp-endpoint", "collector:4317"}, []string{"--metrics-otlp-endpoint", "http://127.0.0.1:4317"}},
	} {
		code, stderr := run(t, w.PID(), c.flags...)
		t.Logf("%s\n    %s", strings.Join(c.flags, " "), strings.TrimSpace(stderr))
		require.Equal(t, 1, code, "%v: %s", c.flags, stderr)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		last := lines[len(lines)-1]
		require.Regexp(t, `^Error: `, last)
		for _, want := range c.want {
			require.Contains(t, last, want)
		}
		require.NotContains(t, stderr, "secret")
		require.NotContains(t, stderr, "goroutine")
	}
	// Valid ones are accepted.
	require.NoError(t, os.WriteFile(token, []byte("right\n"), 0o600))
	for _, flags := range [][]string{
		{"--pyroscope-url", tenants.URL, "--pyroscope-tenant", "team"},
		{"--otlp-endpoint", "http://" + guarded.GRPC, "--otlp-token-file", token},
	} {
		code, stderr := run(t, w.PID(), append(flags, "--timeout", "3")...)
		require.Zero(t, code, "%v: %s", flags, stderr)
		require.NotContains(t, stderr, "export:", "%v", flags)
	}
}

// TestServersThatAreNotUpYetAreWarnings, which are logged once with a count, and not once
// per attempt.
func TestServersThatAreNotUpYetAreWarnings(t *testing.T) {
	p := startPyroscope(t)
	w := startExample(t, "--devices", "1", "--seconds", "120", "--step-ms", "20", "--layers", "8", "--hold", "600")
	w.Say("go")
	nobody := loopback.FreeAddress(t)
	for _, c := range []struct {
		flags         []string
		start, during string
	}{
		{[]string{"--pyroscope-url", "http://" + nobody}, "Pyroscope does not accept data yet, up to 64.0 MiB are kept until it does", "connection refused"},
		{[]string{"--otlp-endpoint", "http://" + nobody}, "the OTLP receiver does not accept data yet", "connection refused"},
		{[]string{"--otlp-endpoint", "https://" + strings.TrimPrefix(p.URL, "http://")}, "the OTLP receiver does not accept data yet", "first record does not look like a TLS handshake"},
		{[]string{"--pyroscope-url", strings.Replace(p.URL, "http", "https", 1)}, "Pyroscope does not accept data yet", "HTTP response to HTTPS client"},
		{[]string{"--pyroscope-url", "http://no-such-host.invalid"}, "Pyroscope does not accept data yet", "no-such-host.invalid"},
	} {
		// Ten seconds are at least four attempts.
		code, stderr := run(t, w.PID(), append(c.flags, "--export-interval", "1s", "--timeout", "10")...)
		t.Logf("%s\n%s", strings.Join(c.flags, " "), stderr)
		require.Zero(t, code, stderr)
		require.Contains(t, stderr, c.start)
		require.Contains(t, stderr, c.during)
		require.Equal(t, 1, strings.Count(stderr, "did not accept data, which is kept and retried"), stderr)
		require.Regexp(t, `did not get (\d+) of (\d+) requests \(.*\): queue full 0, refused 0, run ended (\d+)`, stderr)
	}
}
