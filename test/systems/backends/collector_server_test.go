// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// collector is OpenTelemetry's Collector. Accepted data is in files, one JSON object per
// line, before it answers: it has no queue, and with rotation the file exporter has no
// buffer and appends to the existing file.
type collector struct {
	server
	// GRPC and HTTP are its addresses.
	GRPC, HTTP string
}

// collectorOptions are the differences between the tests.
type collectorOptions struct {
	// forward is a Pyroscope that also gets the profiles.
	forward string
	// grpc is YAML of the gRPC receiver.
	grpc string
	// token is required by the receivers.
	token string
	// withoutProfiles: as by default, without the feature gate.
	withoutProfiles bool
}

func startCollector(t *testing.T, o collectorOptions) *collector {
	t.Helper()
	c := &collector{server: server{name: "the collector", dir: t.TempDir()}}
	c.GRPC, c.HTTP = loopback.FreeAddress(t), loopback.FreeAddress(t)
	profiles, extensions, auth := "[file/profiles]", "", ""
	if o.forward != "" {
		profiles = "[file/profiles, otlphttp]"
	}
	if o.token != "" {
		extensions = fmt.Sprintf("extensions:\n  bearertokenauth: {token: %q}\n", o.token)
		auth = ", auth: {authenticator: bearertokenauth}"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `%sreceivers:
  otlp:
    protocols:
      grpc: {endpoint: %q%s%s}
      http: {endpoint: %q%s}
exporters:
  file/profiles: {path: %q, rotation: {max_megabytes: 1000}}
  file/metrics: {path: %q, rotation: {max_megabytes: 1000}}
  file/logs: {path: %q, rotation: {max_megabytes: 1000}}
`, extensions, c.GRPC, o.grpc, auth, c.HTTP, auth, c.file("profiles"), c.file("metrics"), c.file("logs"))
	if o.forward != "" {
		// Without a queue, so that it does not accept data that it cannot pass on.
		fmt.Fprintf(&b, "  otlphttp: {endpoint: %q, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}\n", o.forward)
	}
	b.WriteString("service:\n")
	if o.token != "" {
		b.WriteString("  extensions: [bearertokenauth]\n")
	}
	b.WriteString("  telemetry: {metrics: {level: none}, logs: {level: warn}}\n  pipelines:\n")
	if !o.withoutProfiles {
		fmt.Fprintf(&b, "    profiles: {receivers: [otlp], exporters: %s}\n", profiles)
	}
	b.WriteString("    metrics: {receivers: [otlp], exporters: [file/metrics]}\n    logs: {receivers: [otlp], exporters: [file/logs]}\n")
	config := filepath.Join(c.dir, "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte(b.String()), 0o600))
	c.args = []string{built(t, "build/backends/collector"), "--config=file:" + config}
	if !o.withoutProfiles {
		c.args = append(c.args, "--feature-gates=service.profilesSupport")
	}
	c.serve(t, c.GRPC)
	return c
}

func (c *collector) file(signal string) string { return filepath.Join(c.dir, signal+".json") }

// lines returns its data of a signal, each line once: a request is sent again if its
// answer was lost. A line that a killed collector did not complete was never answered;
// the next line follows it without a break.
func (c *collector) lines(t *testing.T, signal string) (all []string, twice int) {
	t.Helper()
	content, err := os.ReadFile(c.file(signal))
	if os.IsNotExist(err) {
		return nil, 0
	}
	require.NoError(t, err)
	seen := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		if !strings.HasSuffix(line, "\n") {
			continue // the last one
		}
		if !json.Valid([]byte(line)) {
			line = line[strings.LastIndex(line, fmt.Sprintf(`{"resource%s":`, strings.ToUpper(signal[:1])+signal[1:])):]
			require.True(t, json.Valid([]byte(line)), line)
		}
		if seen[line] {
			twice++
			continue
		}
		seen[line] = true
		all = append(all, line)
	}
	return all, twice
}
