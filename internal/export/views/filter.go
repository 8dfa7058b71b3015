// SPDX-License-Identifier: Apache-2.0

package views

import (
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/validation"
)

// namespaceLabels have the namespace of a series, the first one that it has: that of all series
// of processes (package label), and that of the counters of --metrics-compat. Users can name a
// label of theirs as the second (--labels k8s_namespace=env:X), but only beside the first, which
// package labels refuses to them.
var namespaceLabels = []string{"k8s_namespace_name", "k8s_namespace"}

// namespaceOf is the namespace of a series; "" if it has none, or one that Kubernetes cannot have:
// daemons send these names, and no authorizer should see anything else.
func namespaceOf(m *dto.Metric) string {
	for _, name := range namespaceLabels {
		for _, l := range m.GetLabel() {
			if l.GetName() != name {
				continue
			}
			if len(validation.IsDNS1123Label(l.GetValue())) > 0 {
				return ""
			}
			return l.GetValue()
		}
	}
	return ""
}

// namespaces are those of all series, sorted.
func namespaces(families []*dto.MetricFamily) []string {
	all := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if namespace := namespaceOf(m); namespace != "" {
				all[namespace] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// only returns the series of the allowed namespaces in their order, without families that have
// none. It does not change families, which other requests read.
func only(families []*dto.MetricFamily, allowed map[string]bool) []*dto.MetricFamily {
	var visible []*dto.MetricFamily
	for _, f := range families {
		var series []*dto.Metric
		for _, m := range f.GetMetric() {
			if namespace := namespaceOf(m); namespace != "" && allowed[namespace] {
				series = append(series, m)
			}
		}
		if len(series) > 0 {
			visible = append(visible, &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit, Metric: series})
		}
	}
	return visible
}
