// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/otlp"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/series"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
)

const (
	paramPyroscope = "pyroscope-url"
	paramTenant    = "pyroscope-tenant"
	paramUser      = "pyroscope-user"
	paramPassword  = "pyroscope-password-file"
	paramToken     = "pyroscope-token-file"
	paramCA        = "pyroscope-ca-file"
	paramCompat    = "pyroscope-compat"

	paramOTLP        = "otlp-endpoint"
	paramProtocol    = "otlp-protocol"
	paramOTLPToken   = "otlp-token-file"
	paramOTLPHeaders = "otlp-headers-file"
	paramOTLPCA      = "otlp-ca-file"
	paramLogs        = "otlp-logs"

	paramInterval = "export-interval"
	paramQueue    = "export-queue-size"
	paramInuse    = "export-inuse"
	paramPeak     = "export-peak"
	paramPIDs     = "export-pid"
	paramCluster  = "cluster"
	paramNode     = "node"
)

// Secrets of the environment, by the names that Pyroscope's and OpenTelemetry's own
// clients read.
const (
	envUser     = "PYROSCOPE_BASIC_AUTH_USER"
	envPassword = "PYROSCOPE_BASIC_AUTH_PASSWORD"
	envToken    = "PYROSCOPE_AUTH_TOKEN"
	envTenant   = "PYROSCOPE_TENANT_ID"
	envCA       = "PYROSCOPE_CA_FILE" // a path, not a secret; their clients have none
	envHeaders  = "OTEL_EXPORTER_OTLP_HEADERS"
	envNode     = "NODE_NAME" // the usual name for Kubernetes' downward API
)

// Params are the parameters, of a run or of a whole process.
func Params() api.Params {
	var all api.Params
	add := func(key, title, description string, more ...func(*api.Param)) {
		p := &api.Param{Key: key, Title: title, Description: description, TypeHint: api.TypeString, Tags: []string{api.TagGroupDataCollection}}
		for _, f := range more {
			f(p)
		}
		all = append(all, p)
	}
	value := func(typeHint, value string, possible ...string) func(*api.Param) {
		return func(p *api.Param) { p.TypeHint, p.DefaultValue, p.PossibleValues = typeHint, value, possible }
	}
	add(paramPyroscope, "Pyroscope", "Send profiles to this Pyroscope, e.g. http://pyroscope:4040")
	add(paramTenant, "Pyroscope tenant", "X-Scope-OrgID of a Pyroscope with several tenants (or $"+envTenant+")")
	add(paramUser, "Pyroscope user", "User of basic authentication (or $"+envUser+"); the password is in --"+paramPassword+" or $"+envPassword)
	add(paramPassword, "Pyroscope password", "File with the password")
	add(paramToken, "Pyroscope token", "File with a bearer token (or $"+envToken+")")
	add(paramCA, "Pyroscope CA", "File with the certificates to trust instead of the system's, in PEM (or $"+envCA+")")
	add(paramCompat, "Compatible profile", "Also send allocated bytes as process_cpu:malloc:bytes:: with the labels k8s_namespace and k8s_podName, as the published Advanced GPU Observability dashboard asks for them", value(api.TypeBool, "false"))
	add(paramOTLP, "OTLP", "Send OpenTelemetry profiles to this receiver, e.g. http://collector:4317")
	add(paramProtocol, "OTLP protocol", "grpc, or http (protobuf)", value(api.TypeString, string(otlp.GRPC), otlp.Protocols...))
	add(paramOTLPToken, "OTLP token", "File with a bearer token")
	add(paramOTLPHeaders, "OTLP headers", "File with further headers, \"Name: value\" in each line (or $"+envHeaders+")")
	add(paramOTLPCA, "OTLP CA", "File with the certificates to trust instead of the system's, in PEM")
	add(paramLogs, "OTLP logs", "Send each refused allocation, and each verdict on ranks of NCCL that wait, as a log", value(api.TypeBool, "true"))
	add(paramInterval, "Export interval", "How long a window is", value(api.TypeDuration, "10s"))
	add(paramQueue, "Export queue", "Most memory for what could not be sent yet, for each receiver, e.g. 64MiB; then the oldest is dropped", value(api.TypeString, "64MiB"))
	add(paramInuse, "Export in-use", "Send what is in use as well, as the profile cuda_inuse; do not add it up over time", value(api.TypeBool, "true"))
	add(paramPeak, "Export peaks", "Send what was in use when the process held the most, in each window, as the profile cuda_peak; do not add it up over time", value(api.TypeBool, "false"))
	add(paramPIDs, "Export pids", "Make a series of each process", value(api.TypeBool, "false"))
	add(paramCluster, "Cluster", "Name of the cluster, as a label")
	add(paramNode, "Node", "Name of the node, as a label (or $"+envNode+"); default: the host name")
	return all
}

// settings are the parameters, parsed.
type settings struct {
	pyroscope, otlp *remote.Endpoint // nil: not requested
	protocol        otlp.Protocol
	interval        time.Duration
	queueBytes      int64

	compat, sendLogs, pids bool
	levels                 series.Levels
	cluster, node          string
}

// enabled reports whether anything is to be sent.
func (s *settings) enabled() bool { return s.pyroscope != nil || s.otlp != nil }

func parse(values api.ParamValues) (*settings, error) {
	s := &settings{protocol: otlp.GRPC, interval: 10 * time.Second, cluster: values[paramCluster], node: values[paramNode]}
	if values[paramPyroscope] == "" && values[paramOTLP] == "" {
		return s, needed(values)
	}
	if err := s.parseReceivers(values); err != nil {
		return nil, err
	}
	for name, to := range map[string]*bool{paramCompat: &s.compat, paramLogs: &s.sendLogs, paramInuse: &s.levels.Inuse, paramPeak: &s.levels.Peak, paramPIDs: &s.pids} {
		if values[name] == "" {
			*to = name == paramLogs || name == paramInuse
			continue
		}
		var err error
		if *to, err = strconv.ParseBool(values[name]); err != nil {
			return nil, fmt.Errorf("--%s: want true or false, not %q", name, values[name])
		}
	}
	if v := values[paramInterval]; v != "" {
		var err error
		// Rows are read each second.
		if s.interval, err = duration.Parse(v); err != nil || s.interval < time.Second || s.interval > time.Hour {
			return nil, fmt.Errorf("--%s: want a duration from 1s to 1h, not %q", paramInterval, v)
		}
	}
	var err error
	if s.queueBytes, err = parseSize(values[paramQueue]); err != nil {
		return nil, fmt.Errorf("--%s: %w", paramQueue, err)
	}
	if s.node == "" {
		s.node = Node()
	}
	return s, nil
}

// Node returns the name of this machine, unless a parameter sets it.
func Node() string {
	if node := os.Getenv(envNode); node != "" {
		return node
	}
	host, _ := os.Hostname() // one label less
	return host
}

// needed finds parameters that do nothing without a receiver.
func needed(values api.ParamValues) error {
	for _, p := range []struct{ name, needs string }{
		{paramTenant, paramPyroscope}, {paramUser, paramPyroscope}, {paramPassword, paramPyroscope}, {paramToken, paramPyroscope},
		{paramCA, paramPyroscope}, {paramCompat, paramPyroscope},
		{paramOTLPToken, paramOTLP}, {paramOTLPHeaders, paramOTLP}, {paramOTLPCA, paramOTLP},
	} {
		if v := values[p.name]; v != "" && v != "false" && values[p.needs] == "" {
			return fmt.Errorf("--%s needs --%s", p.name, p.needs)
		}
	}
	return nil
}

func (s *settings) parseReceivers(values api.ParamValues) error {
	if err := needed(values); err != nil {
		return err
	}
	var err error
	if values[paramPyroscope] != "" {
		if s.pyroscope, err = pyroscopeEndpoint(values); err != nil {
			return fmt.Errorf("--%s: %w", paramPyroscope, err)
		}
	}
	if u := values[paramOTLP]; u != "" {
		if p := values[paramProtocol]; p != "" {
			if !slices.Contains(otlp.Protocols, p) {
				return fmt.Errorf("--%s: want %s, not %q", paramProtocol, strings.Join(otlp.Protocols, " or "), p)
			}
			s.protocol = otlp.Protocol(p)
		}
		cfg := remote.Config{URL: u, CAFile: values[paramOTLPCA], TokenFile: values[paramOTLPToken], HeadersFile: values[paramOTLPHeaders]}
		if cfg.HeadersFile == "" {
			if cfg.Header, err = parseHeaders(os.Getenv(envHeaders)); err != nil {
				return fmt.Errorf("$%s: %w", envHeaders, err)
			}
		}
		if s.otlp, err = remote.New(cfg); err != nil {
			return fmt.Errorf("--%s: %w", paramOTLP, err)
		}
	}
	return nil
}

// PyroscopeEndpoint is a Pyroscope for programs other than gadgets; secrets, and the
// certificates to trust, come from the environment alone.
func PyroscopeEndpoint(url string) (*remote.Endpoint, error) {
	return pyroscopeEndpoint(api.ParamValues{paramPyroscope: url})
}

func pyroscopeEndpoint(values api.ParamValues) (*remote.Endpoint, error) {
	cfg := remote.Config{
		URL: values[paramPyroscope], CAFile: values[paramCA],
		User: values[paramUser], PasswordFile: values[paramPassword], TokenFile: values[paramToken],
	}
	if cfg.CAFile == "" {
		cfg.CAFile = os.Getenv(envCA)
	}
	if cfg.TokenFile == "" && cfg.User == "" {
		cfg.User, cfg.Token = os.Getenv(envUser), os.Getenv(envToken)
	}
	if cfg.User != "" && cfg.PasswordFile == "" {
		cfg.Password = os.Getenv(envPassword)
	}
	tenant := values[paramTenant]
	if tenant == "" {
		tenant = os.Getenv(envTenant)
	}
	if tenant != "" {
		cfg.Header = http.Header{"X-Scope-Orgid": {tenant}}
	}
	return remote.New(cfg)
}

// parseHeaders reads "name=value,name=value" (OpenTelemetry's specification of the
// OTLP exporter), with values percent-encoded. Errors do not show values: they are secrets.
func parseHeaders(text string) (http.Header, error) {
	h := http.Header{}
	for i, part := range strings.Split(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(part, "\r\n\x00") {
			return nil, fmt.Errorf("entry %d: want name=value", i+1)
		}
		value, err := url.PathUnescape(strings.TrimSpace(value)) // "+" stays
		if err != nil {
			return nil, fmt.Errorf("entry %d: want a percent-encoded value", i+1) // without err, which shows it
		}
		if !remote.Printable(value) {
			return nil, fmt.Errorf("entry %d: want a value of one line", i+1)
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h, nil
}

// parseSize reads a number of bytes with a binary unit.
func parseSize(text string) (int64, error) {
	const smallest = 1 << 20
	if text == "" {
		return 64 << 20, nil
	}
	digits, shift := strings.TrimSuffix(text, "B"), 0
	for unit, bits := range map[string]int{"Ki": 10, "Mi": 20, "Gi": 30} {
		if rest, ok := strings.CutSuffix(digits, unit); ok {
			digits, shift = rest, bits
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 33)
	if err != nil || n < 0 || n<<shift < smallest || n<<shift > 16<<30 {
		return 0, fmt.Errorf("want a size from 1MiB to 16GiB, not %q", text)
	}
	return n << shift, nil
}
