// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
)

// The collector's files are read by the names of OTLP's JSON alone, and not by a library
// that could have the same bugs as their writer.

// number is a 64 bit integer, which JSON of protobuf has as a string.
type number int64

func (n *number) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	*n = number(v)
	return err
}

type anyValue struct {
	StringValue string
	IntValue    number
	ArrayValue  struct{ Values []anyValue }
	KvlistValue struct{ Values []keyValue }
}

type keyValue struct {
	Key   string
	Value anyValue
}

func attribute(all []keyValue, key string) anyValue {
	for _, a := range all {
		if a.Key == key {
			return a.Value
		}
	}
	return anyValue{}
}

type profilesLine struct {
	Dictionary struct {
		LocationTable []struct {
			Lines []struct {
				FunctionIndex int
				Line          number
			}
			AttributeIndices []int
		}
		FunctionTable  []struct{ NameStrindex, FilenameStrindex int }
		StackTable     []struct{ LocationIndices []int }
		StringTable    []string
		AttributeTable []struct {
			KeyStrindex int
			Value       anyValue
		}
	}
	ResourceProfiles []struct {
		ScopeProfiles []struct {
			Profiles []struct {
				SampleType   struct{ TypeStrindex, UnitStrindex int }
				PeriodType   struct{ TypeStrindex, UnitStrindex int }
				TimeUnixNano number
				DurationNano number
				Samples      []struct {
					StackIndex       int
					AttributeIndices []int
					Values           []number
				}
			}
		}
	}
}

// profiles returns all profiles of the collector, by the id that Pyroscope would give
// them. Memory in use is that of the latest window.
func (c *collector) profiles(t *testing.T) map[string]*pprof.Profile {
	t.Helper()
	all, at := map[string]*pprof.Profile{}, map[string]number{}
	lines, twice := c.lines(t, "profiles")
	if twice > 0 {
		t.Logf("%d of %d requests came twice", twice, len(lines))
	}
	for _, line := range lines {
		var l profilesLine
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		text := func(i int) string { return l.Dictionary.StringTable[i] }
		for _, r := range l.ResourceProfiles {
			for _, s := range r.ScopeProfiles {
				for _, p := range s.Profiles {
					id := strings.Join([]string{text(p.PeriodType.TypeStrindex), text(p.SampleType.TypeStrindex), text(p.SampleType.UnitStrindex),
						text(p.PeriodType.TypeStrindex), text(p.PeriodType.UnitStrindex)}, ":")
					require.Positive(t, p.TimeUnixNano, id)
					require.Positive(t, p.DurationNano, id)
					to := all[id]
					switch isLevel := strings.HasPrefix(id, "cuda_inuse:"); {
					case to == nil, isLevel && p.TimeUnixNano > at[id]:
						to = &pprof.Profile{SampleType: []*pprof.ValueType{{}}}
					case isLevel && p.TimeUnixNano < at[id]:
						continue
					}
					all[id], at[id] = to, max(at[id], p.TimeUnixNano)
					for _, sample := range p.Samples {
						require.Len(t, sample.Values, 1)
						to.Sample = append(to.Sample, l.sample(sample.StackIndex, sample.AttributeIndices, int64(sample.Values[0])))
					}
				}
			}
		}
	}
	return all
}

func (l *profilesLine) sample(stack int, attributes []int, v int64) *pprof.Sample {
	s := &pprof.Sample{Value: []int64{v}, Label: map[string][]string{}}
	for _, i := range l.Dictionary.StackTable[stack].LocationIndices {
		at := &pprof.Location{}
		for _, line := range l.Dictionary.LocationTable[i].Lines {
			f := l.Dictionary.FunctionTable[line.FunctionIndex]
			at.Line = append(at.Line, pprof.Line{Line: int64(line.Line), Function: &pprof.Function{
				Name: l.Dictionary.StringTable[f.NameStrindex], Filename: l.Dictionary.StringTable[f.FilenameStrindex]}})
		}
		s.Location = append(s.Location, at)
	}
	for _, i := range attributes {
		a := l.Dictionary.AttributeTable[i]
		s.Label[l.Dictionary.StringTable[a.KeyStrindex]] = []string{a.Value.StringValue}
	}
	return s
}

// point is one series of a metric, as it was last.
type point struct {
	metric, process, kind, device string
}

// metrics returns the latest values of the collector.
func (c *collector) metrics(t *testing.T) map[point]int64 {
	t.Helper()
	type dataPoint struct {
		Attributes []keyValue
		AsInt      number
		AsDouble   float64
	}
	all := map[point]int64{}
	lines, _ := c.lines(t, "metrics")
	for _, line := range lines {
		var l struct {
			ResourceMetrics []struct {
				ScopeMetrics []struct {
					Metrics []struct {
						Name       string
						Sum, Gauge struct{ DataPoints []dataPoint }
					}
				}
			}
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		for _, r := range l.ResourceMetrics {
			for _, s := range r.ScopeMetrics {
				for _, m := range s.Metrics {
					for _, p := range append(m.Sum.DataPoints, m.Gauge.DataPoints...) {
						text := func(key string) string {
							v := attribute(p.Attributes, key)
							if v.StringValue == "" {
								return strconv.FormatInt(int64(v.IntValue), 10)
							}
							return v.StringValue
						}
						all[point{m.Name, text("process.pid"), text("kind"), text("device")}] = int64(p.AsInt) + int64(p.AsDouble)
					}
				}
			}
		}
	}
	return all
}

// logRecord is a log, with the attributes of its resource.
type logRecord struct {
	EventName      string
	SeverityText   string
	TimeUnixNano   number
	Body           anyValue
	Attributes     []keyValue
	ResourceLabels []keyValue `json:"-"`
}

func (c *collector) logs(t *testing.T) (all []logRecord) {
	t.Helper()
	lines, _ := c.lines(t, "logs")
	for _, line := range lines {
		var l struct {
			ResourceLogs []struct {
				Resource  struct{ Attributes []keyValue }
				ScopeLogs []struct{ LogRecords []logRecord }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		for _, r := range l.ResourceLogs {
			for _, s := range r.ScopeLogs {
				for _, record := range s.LogRecords {
					record.ResourceLabels = r.Resource.Attributes
					all = append(all, record)
				}
			}
		}
	}
	return all
}
