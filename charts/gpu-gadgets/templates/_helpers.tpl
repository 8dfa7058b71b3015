{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "gpu-gadgets.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{- end -}}
{{- end -}}

{{/* A StatefulSet's name has at most 52 characters: in the label controller-revision-hash of its pods 11
more follow (kubernetes#64023), and labels have at most 63. */}}
{{- define "gpu-gadgets.exporterName" -}}
{{ include "gpu-gadgets.name" . | trunc 43 | trimSuffix "-" }}-exporter
{{- end -}}

{{/* An instance's name is a label as well: root, and name of the gadget, of at most 11 characters. */}}
{{- define "gpu-gadgets.instanceName" -}}
{{ include "gpu-gadgets.name" .root | trunc 51 | trimSuffix "-" }}-{{ .name }}
{{- end -}}

{{/* Where the daemons are from which the exporter collects. */}}
{{- define "gpu-gadgets.gadgetNamespace" -}}
{{ default (ternary .Release.Namespace "gadget" (index .Values "inspektor-gadget").enabled) .Values.exporter.gadgetNamespace }}
{{- end -}}

{{- define "gpu-gadgets.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "gpu-gadgets.labels" -}}
{{ include "gpu-gadgets.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The exporter's pods are of another name, so that the Service of the nodes does not select them. */}}
{{- define "gpu-gadgets.exporterSelector" -}}
app.kubernetes.io/name: gpu-exporter
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "gpu-gadgets.exporterLabels" -}}
{{ include "gpu-gadgets.exporterSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "gpu-gadgets.serviceAccount" -}}
{{ default (include "gpu-gadgets.name" .) .Values.serviceAccount.name }}
{{- end -}}

{{/* The gadgets that run, as a YAML list in a fixed order: their ports follow from it. */}}
{{- define "gpu-gadgets.gadgets" -}}
{{- $g := .Values.gpuObservability.gadgets -}}
{{- if and .Values.gpuObservability.enabled $g.cudaAlloc.enabled }}
- {name: cuda-alloc, gadget: cuda_alloc, key: cudaAlloc}
{{- end }}
{{- if and .Values.gpuObservability.enabled $g.pyStack.enabled }}
- {name: py-stack, gadget: py_stack, key: pyStack}
{{- end }}
{{- if and .Values.gpuObservability.enabled $g.cudaKernel.enabled }}
- {name: cuda-kernel, gadget: cuda_kernel, key: cudaKernel}
{{- end }}
{{- if and .Values.gpuObservability.enabled $g.ncclTrace.enabled }}
- {name: nccl-trace, gadget: nccl_trace, key: ncclTrace}
{{- end }}
{{- if and .Values.gpuObservability.enabled $g.hipAlloc.enabled }}
- {name: hip-alloc, gadget: hip_alloc, key: hipAlloc}
{{- end }}
{{- if and .Values.gpuObservability.enabled $g.hipKernel.enabled }}
- {name: hip-kernel, gadget: hip_kernel, key: hipKernel}
{{- end }}
{{- end -}}

{{/* The metrics endpoints, as a YAML list of name, port, target. */}}
{{- define "gpu-gadgets.ports" -}}
{{- range $i, $g := include "gpu-gadgets.gadgets" . | fromYamlArray }}
{{- if eq $.Values.mode "run" }}
- {name: {{ $g.name }}, port: {{ add $.Values.metrics.port $i }}, target: {{ $g.name }}}
{{- else if eq $i 0 }}
- {name: metrics, port: {{ $.Values.metrics.port }}, target: {{ $.Values.metrics.port }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* How the kubelet asks a gadget whether it is well: root, and the gadget. */}}
{{- define "gpu-gadgets.healthy" -}}
{{- if contains "--metrics-listen-client-ca" (join " " (index .root.Values.gpuObservability.gadgets .gadget.key).args) -}}
# The kubelet has no certificate that this endpoint accepts.
tcpSocket: {port: {{ .gadget.name }}}
{{- else -}}
httpGet: {path: /healthz, port: {{ .gadget.name }}{{ if .root.Values.metrics.tlsSecret }}, scheme: HTTPS{{ end }}}
{{- end -}}
{{- end -}}

{{/* Whether this is OpenShift, whose security context constraints decide which pods there may be. */}}
{{- define "gpu-gadgets.openshift" -}}
{{- if .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}true{{- end -}}
{{- end -}}

{{/* Whether to install a resource of the Prometheus operator: auto checks the cluster. */}}
{{- define "gpu-gadgets.monitoring" -}}
{{- $switch := toString .switch -}}
{{- if or (eq $switch "true") (and (eq $switch "auto") (.root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind))) -}}true{{- end -}}
{{- end -}}
