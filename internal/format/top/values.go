// SPDX-License-Identifier: Apache-2.0

package top

import "github.com/gpu-gadgets/gpu-gadgets/internal/profile"

// Value is a row of the table for programs. Where its rows differ in a field, that says in
// words how many there are, as the table does.
type Value struct {
	Name    string `json:"name"` // the line, or what rows are grouped by
	Layer   string `json:"layer" jsonschema:"driver, or torch: tensors within the driver's memory"`
	Kind    string `json:"kind,omitempty"`
	Device  string `json:"device,omitempty"`
	Process string `json:"process"`

	InuseBytes      int64 `json:"inuse_bytes"`
	InuseObjects    int64 `json:"inuse_objects"`
	AllocBytes      int64 `json:"alloc_bytes"`
	PeakBytes       int64 `json:"peak_bytes"`
	AtPeakBytes     int64 `json:"at_peak_bytes" jsonschema:"in use when the process held the most on the device; rows of a process and device add up to that"`
	RoundingBytes   int64 `json:"rounding_bytes,omitempty" jsonschema:"of inuse_bytes, what PyTorch's pool added to requests by rounding"`
	FragmentedBytes int64 `json:"fragmented_bytes,omitempty" jsonschema:"unused bytes of segments that the line's tensors keep"`
	Launches        int64 `json:"launches"`
	CopiedBytes     int64 `json:"copied_bytes"`
	WaitNanoseconds int64 `json:"wait_ns"`
}

// Values are the rows of the view in the order of the table.
func (m *Model) Values() []Value {
	columns := m.columns()
	groups := m.groups()
	m.sortGroups(groups, columns[m.sortColumn(columns)])
	out := make([]Value, len(groups))
	for n, g := range groups {
		layer := "driver"
		if g.layer == profile.Torch {
			layer = "torch"
		}
		v := &g.values
		out[n] = Value{
			Name: g.name, Layer: layer, Kind: g.kind.plural("kinds"), Device: g.devices(), Process: g.process.plural("processes"),
			InuseBytes: v.InuseBytes, InuseObjects: v.InuseObjects, AllocBytes: v.AllocBytes, PeakBytes: v.PeakBytes, AtPeakBytes: v.AtPeakBytes,
			RoundingBytes: v.RoundingBytes, FragmentedBytes: v.FragmentedBytes,
			Launches: v.Launches, CopiedBytes: v.CopiedBytes, WaitNanoseconds: v.WaitNanoseconds,
		}
	}
	return out
}
