{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* Metrics flags of one gadget: root, port, its key, and whether it is the first. */}}
{{- define "gpu-gadgets.metricsArgs" -}}
{{- with .root.Values -}}
- --metrics-listen=:{{ $.port }}
{{- if .metrics.tlsSecret }}
- --metrics-listen-cert=/etc/gpu-gadgets/metrics-tls/tls.crt
- --metrics-listen-key=/etc/gpu-gadgets/metrics-tls/tls.key
{{- end }}
{{- with .cluster }}
- {{ printf "--metrics-cluster=%s" . | quote }}
{{- end }}
{{- if .metrics.compat }}
- --metrics-compat
{{- end }}
{{- with .metrics.otlpEndpoint }}
- {{ printf "--metrics-otlp-endpoint=%s" . | quote }}
- --metrics-interval={{ $.root.Values.metrics.interval }}
{{- end }}
{{- /* Only one gadget reports a GPU: the values of all would be the same. With hipAlloc beside others it
reports AMD's, because it has the rows that explain the memory of their processes. */}}
{{- $gpus := "off" }}
{{- if eq .metrics.nvml "off" }}
{{- else if $.first }}
{{- $gpus = ternary "nvidia" "auto" (and .gpuObservability.gadgets.hipAlloc.enabled (ne $.key "hipAlloc")) }}
{{- else if eq $.key "hipAlloc" }}
{{- $gpus = "amd" }}
{{- end }}
- --metrics-nvml={{ $gpus }}
{{- /* So are idle and frozen processes, which are found in what the driver counts and in rows of memory. */}}
{{- if or (ne $gpus "off") (has $.key (list "cudaAlloc" "hipAlloc")) }}
{{- with .metrics.idleHolders }}
- --metrics-idle-holders={{ . }}
{{- end }}
{{- with .metrics.frozen }}
- --metrics-frozen={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Flags of profiles. Secrets are files: every user of the node can read arguments. */}}
{{- define "gpu-gadgets.exportArgs" -}}
{{- with .Values.pyroscope }}
{{- if .url }}
- {{ printf "--pyroscope-url=%s" .url | quote }}
{{- with .tenant }}
- {{ printf "--pyroscope-tenant=%s" . | quote }}
{{- end }}
{{- if .tokenSecret }}
- --pyroscope-token-file=/etc/gpu-gadgets/pyroscope-token/token
{{- end }}
{{- with .user }}
- {{ printf "--pyroscope-user=%s" . | quote }}
- --pyroscope-password-file=/etc/gpu-gadgets/pyroscope-password/password
{{- end }}
{{- if .caConfigMap }}
- --pyroscope-ca-file=/etc/gpu-gadgets/pyroscope-ca/ca.crt
{{- end }}
{{- if $.Values.metrics.compat }}
- --pyroscope-compat
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.otlp }}
{{- if .endpoint }}
- {{ printf "--otlp-endpoint=%s" .endpoint | quote }}
- --otlp-protocol={{ .protocol }}
{{- if not .logs }}
- --otlp-logs=false
{{- end }}
{{- if .tokenSecret }}
- --otlp-token-file=/etc/gpu-gadgets/otlp-token/token
{{- end }}
{{- if .headersSecret }}
- --otlp-headers-file=/etc/gpu-gadgets/otlp-headers/headers
{{- end }}
{{- if .caConfigMap }}
- --otlp-ca-file=/etc/gpu-gadgets/otlp-ca/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- if or .Values.pyroscope.url .Values.otlp.endpoint }}
{{- with .Values.cluster }}
- {{ printf "--cluster=%s" . | quote }}
{{- end }}
{{- with .Values.export }}
- --export-interval={{ .interval }}
- --export-queue-size={{ .queueSize }}
{{- if not .inuse }}
- --export-inuse=false
{{- end }}
{{- if .peak }}
- --export-peak
{{- end }}
{{- if .pids }}
- --export-pid
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What has to be mounted for these flags, as a YAML list of name, kind, object. */}}
{{- define "gpu-gadgets.files" -}}
{{- with .Values.pyroscope }}
{{- if .url }}
{{- with .tokenSecret }}
- {name: pyroscope-token, secret: {{ . | quote }}}
{{- end }}
{{- with .passwordSecret }}
- {name: pyroscope-password, secret: {{ . | quote }}}
{{- end }}
{{- with .caConfigMap }}
- {name: pyroscope-ca, configMap: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.otlp }}
{{- if .endpoint }}
{{- with .tokenSecret }}
- {name: otlp-token, secret: {{ . | quote }}}
{{- end }}
{{- with .headersSecret }}
- {name: otlp-headers, secret: {{ . | quote }}}
{{- end }}
{{- with .caConfigMap }}
- {name: otlp-ca, configMap: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Checks that the schema cannot express. ig-gpu would also refuse these values, on each node. */}}
{{- define "gpu-gadgets.check" -}}
{{- $ig := index .Values "inspektor-gadget" }}
{{- if eq .Values.mode "daemon" }}
{{- if or .Values.pyroscope.url .Values.otlp.endpoint .Values.metrics.otlpEndpoint .Values.metrics.compat .Values.cluster }}
{{- fail "mode daemon: set export destinations in the daemon's configuration, inspektor-gadget.config.operator.export and .metrics (see values-daemon.yaml), not in cluster, pyroscope, otlp, metrics.otlpEndpoint or metrics.compat" }}
{{- end }}
{{- if .Values.metrics.tlsSecret }}
{{- fail "mode daemon: metrics.tlsSecret is for the pods of mode run; the daemon has inspektor-gadget.config.operator.metrics.metrics-listen-cert" }}
{{- end }}
{{- if and $ig.enabled (hasPrefix "ghcr.io/inspektor-gadget/" (dig "image" "repository" "ghcr.io/inspektor-gadget/" $ig)) }}
{{- fail "mode daemon: inspektor-gadget.image is Inspektor Gadget's own image, without our operators: nothing would be exported" }}
{{- end }}
{{- if and $ig.enabled (not $ig.hostPID) }}
{{- fail "mode daemon: inspektor-gadget.hostPID has to be true" }}
{{- end }}
{{- end }}
{{- range include "gpu-gadgets.gadgets" . | fromYamlArray }}
{{- if and (not $.Values.metrics.tlsSecret) (contains "--metrics-listen-cert" (join " " (index $.Values.gpuObservability.gadgets .key).args)) }}
{{- fail (printf "gpuObservability.gadgets.%s.args: TLS needs metrics.tlsSecret, of which the probes and the ServiceMonitor know" .key) }}
{{- end }}
{{- end }}
{{- with .Values.pyroscope }}
{{- if and (not .url) (or .tenant .tokenSecret .user .passwordSecret .caConfigMap .selfProfile) }}
{{- fail "pyroscope: its other values need pyroscope.url" }}
{{- end }}
{{- if ne (empty .user) (empty .passwordSecret) }}
{{- fail "pyroscope: a user needs a passwordSecret, and a passwordSecret a user" }}
{{- end }}
{{- if and .user .tokenSecret }}
{{- fail "pyroscope: either a user or a tokenSecret, not both" }}
{{- end }}
{{- if and .caConfigMap (not (hasPrefix "https://" .url)) }}
{{- fail "pyroscope: a caConfigMap needs a url with https" }}
{{- end }}
{{- end }}
{{- with .Values.otlp }}
{{- if and (not .endpoint) (or .tokenSecret .headersSecret .caConfigMap) }}
{{- fail "otlp: its other values need otlp.endpoint" }}
{{- end }}
{{- if and .caConfigMap (not (hasPrefix "https://" .endpoint)) }}
{{- fail "otlp: a caConfigMap needs an endpoint with https" }}
{{- end }}
{{- end }}
{{- end -}}
