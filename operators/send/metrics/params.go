// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/listen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
)

func globalParams() api.Params {
	return api.Params{
		{Key: paramListen, Description: "Serve metrics to Prometheus at this address (/metrics), e.g. 127.0.0.1:9464"},
		{Key: paramCert, Description: "Serve metrics with TLS: file with the certificate (PEM), read again when it is replaced"},
		{Key: paramKey, Description: "File with the key of that certificate"},
		{Key: paramClientCA, Description: "File with certificates (PEM): scrapers must have one that these have signed"},
		{Key: paramToken, Description: "File with a token: scrapers must send the header Authorization: Bearer TOKEN"},
		{Key: paramEndpoint, Description: "Push metrics over OTLP (gRPC) to this receiver, e.g. http://127.0.0.1:4317; https for TLS. Headers and certificates are taken from the OTEL_EXPORTER_OTLP_… variables"},
		{Key: paramInterval, DefaultValue: "10s", TypeHint: api.TypeDuration, Description: "Time between two pushes"},
		{Key: paramCluster, Description: "Name of the cluster, as a label of all metrics"},
		{Key: paramCompat, DefaultValue: "false", TypeHint: api.TypeBool, Description: "Also export the three counters of the dashboard AdvancedGPUObservability (mem_alloc_bytes_total, …)"},
		{Key: paramNVML, DefaultValue: nvmlAuto, Description: "Metrics of the GPUs themselves, from NVIDIA's libnvidia-ml.so.1 and AMD's driver: auto, off, nvidia or amd for those of one vendor, or the library's path"},
		{Key: paramHolders, TypeHint: api.TypeDuration, Description: "Also report processes that hold GPU memory, have done nothing for this long (such as 30m), and have outlived their parent or cannot end"},
		{Key: paramFrozen, TypeHint: api.TypeDuration, Description: "Also report processes that hold GPU memory and whose main thread has not run for this long (such as 5m), with what it waits for"},
	}
}

func parse(value func(string) string) (settings, error) {
	s := settings{listen: value(paramListen), cluster: value(paramCluster), interval: 10 * time.Second, timeout: exportTimeout}
	if s.listen != "" {
		if _, port, err := net.SplitHostPort(s.listen); err != nil || port == "" {
			return s, fmt.Errorf("--%s: %q is not an address like 127.0.0.1:9464", paramListen, s.listen)
		}
	}
	s.protect = listen.Options{Cert: value(paramCert), Key: value(paramKey), ClientCA: value(paramClientCA), Token: value(paramToken)}
	if err := s.protect.Check(); err != nil {
		return s, fmt.Errorf("--%s-…: %w", paramListen, err)
	}
	if s.protect.Protects() && s.listen == "" {
		return s, fmt.Errorf("--%s is missing: certificates and tokens are for that endpoint", paramListen)
	}
	if text := value(paramEndpoint); text != "" {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return s, fmt.Errorf("--%s: %q is not a URL like http://127.0.0.1:4317 or https://collector:4317", paramEndpoint, text)
		}
		s.endpoint = u
	}
	if text := value(paramInterval); text != "" {
		d, err := duration.Parse(text)
		if err != nil || d < minInterval {
			return s, fmt.Errorf("--%s: %q is not a duration of at least %s", paramInterval, text, minInterval)
		}
		s.interval = d
	}
	for _, age := range []struct {
		param string
		to    *time.Duration
		least time.Duration
		words string
	}{{paramHolders, &s.idle, time.Minute, "1m"}, {paramFrozen, &s.frozen, 10 * time.Second, "10s"}} {
		text := value(age.param)
		if text == "" {
			continue
		}
		d, err := duration.Parse(text)
		if err != nil || d < age.least {
			return s, fmt.Errorf("--%s: %q is not a duration of at least %s", age.param, text, age.words)
		}
		*age.to = d
	}
	if text := value(paramCompat); text != "" {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return s, fmt.Errorf("--%s: %q is neither true nor false", paramCompat, text)
		}
		s.compat = on
	}
	if s.compat && s.listen == "" && s.endpoint == nil {
		return s, fmt.Errorf("--%s needs --%s or --%s", paramCompat, paramListen, paramEndpoint)
	}
	return s, nil
}
