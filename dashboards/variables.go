// SPDX-License-Identifier: Apache-2.0

package dashboards

import "strings"

// Variable is a drop-down list, from which several values or all can be chosen.
type Variable struct {
	Name, Label string
	// Query is Grafana's label_values.
	Query string
}

// Variables are the lists that choose. Each narrows the next ones.
func Variables() []Variable {
	const inCluster, inNamespace = `k8s_cluster_name=~"$cluster"`, `k8s_namespace_name=~"$namespace"`
	return []Variable{
		{"cluster", "Cluster", `label_values(gpu_gadgets_rows, k8s_cluster_name)`},
		{"namespace", "Namespace", `label_values(gpu_memory_inuse_bytes{` + inCluster + `}, k8s_namespace_name)`},
		{"pod", "Pod", `label_values(gpu_memory_inuse_bytes{` + inCluster + `,` + inNamespace + `}, k8s_pod_name)`},
		{"instance", "Node", `label_values(gpu_gadgets_rows{` + inCluster + `}, instance)`},
		{"vendor", "Vendor", `label_values(hw_gpu_memory_limit_bytes{` + nodes + `}, hw_vendor)`},
	}
}

func variables() []object {
	source := object{"type": "prometheus", "uid": prometheusUID}
	all := []object{
		{"name": "prom_ds", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
		{"name": "pyroscope_ds", "label": "Pyroscope", "type": "datasource", "query": "grafana-pyroscope-datasource"},
	}
	for _, v := range Variables() {
		all = append(all, object{
			"name": v.Name, "label": v.Label, "type": "query", "datasource": source, "refresh": 2, "sort": 1,
			"query": object{"query": v.Query, "refId": v.Name}, "definition": v.Query,
			// A series without the label is in "all", too.
			"multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		})
	}
	return all
}

func annotations() []object {
	return []object{{
		"name": "Refused allocations", "enable": true, "iconColor": "red", "hide": false,
		"datasource": object{"type": "prometheus", "uid": prometheusUID},
		"expr":       Refused, "step": "30s", "titleFormat": "Out of GPU memory",
		"textFormat": "{{k8s_pod_name}} {{process_comm}}[{{process_pid}}]",
	}}
}

// Profile is a question to Pyroscope.
type Profile struct {
	Title string
	// Type is Pyroscope's id of the profile type.
	Type string
	// Selector has Grafana's variables; Filled fills them.
	Selector string
	// IsLevel: only one push interval can be asked for, see Panel.LastInterval.
	IsLevel bool
}

// Profiles is what all flame graphs ask for.
func Profiles() (all []Profile) {
	for _, row := range Rows() {
		for _, p := range row.Panels {
			if p.Kind != FlameGraph {
				continue
			}
			for _, q := range p.Queries {
				all = append(all, Profile{Title: p.Title, Type: q.Expr, Selector: profileSelector, IsLevel: p.LastInterval})
			}
		}
	}
	return all
}

// Filled is a query or a selector as Grafana sends it. The values of the lists are
// regular expressions, those of __range and __rate_interval durations.
func Filled(query string, values map[string]string) string {
	var pairs []string
	for name, unset := range map[string]string{
		"__rate_interval": "1m", "__range": "1h", "cluster": ".*", "namespace": ".*", "pod": ".*", "instance": ".*", "vendor": ".*",
	} {
		value, ok := values[name]
		if !ok {
			value = unset
		}
		pairs = append(pairs, "${"+name+":regex}", value, "$"+name, value)
	}
	return strings.NewReplacer(pairs...).Replace(query)
}
