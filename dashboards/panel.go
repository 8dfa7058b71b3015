// SPDX-License-Identifier: Apache-2.0

// Package dashboards is what Grafana shows of ig-gpu's metrics and profiles. The
// panels are Go (panels.go); gpu-gadgets.json is made from them by its test with
// -update, and is what users import. Every query is run against a real Prometheus
// by test/systems/prometheus.
package dashboards

import (
	"encoding/json"
	"fmt"
)

// Panel is one picture.
type Panel struct {
	Title, Description string
	Kind               Kind
	Unit               string // Grafana's name of it
	Queries            []Query
	// Width is of 24 columns.
	Width int
	// Stacked areas show a sum.
	Stacked bool
	// LastInterval shows the last push interval that is complete, whatever time range
	// the user chose: levels of several intervals would be added up.
	LastInterval bool
}

// Kind is what a panel draws.
type Kind string

const (
	TimeSeries Kind = "timeseries"
	Stat       Kind = "stat"
	Table      Kind = "table"
	FlameGraph Kind = "flamegraph"
)

// Query is in PromQL; of a flame graph, it is the profile type.
type Query struct {
	Expr   string
	Legend string
	// Limit draws a dashed red line.
	Limit bool
}

// Row is a titled group of panels.
type Row struct {
	Title  string
	Panels []Panel
	// Folded shows only the title until a user opens the row: for gadgets that do
	// not run everywhere.
	Folded bool
}

// object is JSON with its keys sorted, so that the file is the same every time.
type object map[string]any

const (
	prometheusUID = "${prom_ds}"
	pyroscopeUID  = "${pyroscope_ds}"
	height        = 9
	columns       = 24

	// pushInterval is the default of ig-gpu's --export-interval. A window has the time
	// of its start and is sent at its end, so its profile of a moment ago is not there
	// yet: pushShift is an interval and time to send.
	pushInterval    = "10s"
	pushShift       = "15s"
	profileSelector = `{cluster=~"${cluster:regex}",namespace=~"${namespace:regex}",pod=~"${pod:regex}"}`
)

// JSON is the dashboard as Grafana imports it.
func JSON() ([]byte, error) {
	var panels []object
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, row := range Rows() {
		title := object{
			"id": next(), "type": "row", "title": row.Title, "collapsed": row.Folded, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": columns, "h": 1},
		}
		y++
		x, at := 0, y
		var inside []object
		for _, p := range row.Panels {
			if x+p.Width > columns {
				x, at = 0, at+height
			}
			o, err := p.json(next(), object{"x": x, "y": at, "w": p.Width, "h": height})
			if err != nil {
				return nil, err
			}
			inside = append(inside, o)
			x += p.Width
		}
		panels = append(panels, title)
		if row.Folded {
			title["panels"] = inside // and take no room
			continue
		}
		panels = append(panels, inside...)
		y = at + height
	}
	out, err := json.MarshalIndent(object{
		"uid": "gpu-gadgets", "title": "GPU memory, by line of Python", "tags": []string{"gpu", "gpu-gadgets"},
		"description":   "Who holds, takes and leaks GPU memory; made by gpu-gadgets",
		"schemaVersion": 41, "version": 1, "editable": true, "graphTooltip": 1, "timezone": "browser",
		"refresh": "30s", "time": object{"from": "now-1h", "to": "now"},
		"templating":  object{"list": variables()},
		"annotations": object{"list": annotations()},
		"panels":      panels,
	}, "", "  ")
	return append(out, '\n'), err
}

func (p Panel) json(id int, position object) (object, error) {
	if len(p.Queries) == 0 {
		return nil, fmt.Errorf("panel %q has no query", p.Title)
	}
	o := object{"id": id, "type": string(p.Kind), "title": p.Title, "description": p.Description, "gridPos": position}
	if p.Kind == FlameGraph {
		source := object{"type": "grafana-pyroscope-datasource", "uid": pyroscopeUID}
		o["datasource"] = source
		o["targets"] = []object{{
			"refId": "A", "datasource": source, "queryType": "profile", "profileTypeId": p.Queries[0].Expr,
			"labelSelector": profileSelector, "groupBy": []string{}, "spanSelector": []string{},
		}}
		if p.LastInterval {
			o["timeFrom"], o["timeShift"] = pushInterval, pushShift
		}
		o["options"], o["fieldConfig"] = object{}, object{"defaults": object{}, "overrides": []object{}}
		return o, nil
	}
	source := object{"type": "prometheus", "uid": prometheusUID}
	var targets, overrides []object
	for i, q := range p.Queries {
		target := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Legend, "editorMode": "code"}
		if p.Kind != TimeSeries {
			target["instant"], target["range"] = true, false
		}
		if p.Kind == Table {
			target["format"] = "table"
		}
		targets = append(targets, target)
		if q.Limit {
			overrides = append(overrides, object{
				"matcher": object{"id": "byFrameRefID", "options": target["refId"]},
				"properties": []object{
					{"id": "color", "value": object{"mode": "fixed", "fixedColor": "red"}},
					{"id": "custom.lineStyle", "value": object{"fill": "dash", "dash": []int{10, 10}}},
					{"id": "custom.fillOpacity", "value": 0},
					{"id": "custom.stacking", "value": object{"mode": "none", "group": "A"}},
				},
			})
		}
	}
	if overrides == nil {
		overrides = []object{}
	}
	defaults := object{"unit": p.Unit}
	if p.Kind == TimeSeries {
		custom := object{"fillOpacity": 10, "showPoints": "never"}
		if p.Stacked {
			custom["stacking"], custom["fillOpacity"] = object{"mode": "normal", "group": "A"}, 40
		}
		defaults["custom"] = custom
		o["options"] = object{
			"legend":  object{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}, "showLegend": true},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	}
	switch p.Kind {
	case Table:
		// One column of each label, and the value; the instant is that of the range.
		o["options"] = object{"frameIndex": 0, "showHeader": true, "cellHeight": "sm", "sortBy": []object{{"displayName": "Value", "desc": true}}}
		o["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true}}}}
	case Stat:
		o["options"] = object{
			"graphMode": "none", "colorMode": "value", "justifyMode": "auto", "textMode": "auto", "orientation": "auto",
			"wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard", "reduceOptions": object{"calcs": []string{"lastNotNull"}, "values": false},
		}
	}
	o["datasource"], o["targets"] = source, targets
	o["fieldConfig"] = object{"defaults": defaults, "overrides": overrides}
	return o, nil
}
