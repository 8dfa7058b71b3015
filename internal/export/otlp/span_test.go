// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile/fixture"
)

// Samples of a span link to it, without a trace id: see link.
func TestSpansAreLinks(t *testing.T) {
	requests := (&Encoder{}).Profiles(windowOf(fixture.Spans()))
	require.Len(t, requests, 1)
	raw, err := proto.Marshal(requests[0])
	require.NoError(t, err)
	read := pprofileotlp.NewExportRequest()
	require.NoError(t, read.UnmarshalProto(raw))
	links := read.Profiles().Dictionary().LinkTable()
	require.Equal(t, 3, links.Len())
	bytes := map[string]int64{}
	profiles := read.Profiles().ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles()
	texts := read.Profiles().Dictionary().StringTable()
	for i := range profiles.Len() {
		p := profiles.At(i)
		if texts.At(int(p.SampleType().TypeStrindex())) != "alloc_space" {
			continue
		}
		for j := range p.Samples().Len() {
			s := p.Samples().At(j)
			link := links.At(int(s.LinkIndex()))
			require.True(t, link.TraceID().IsEmpty())
			id := ""
			if !link.SpanID().IsEmpty() {
				id = link.SpanID().String()
			}
			bytes[id] += s.Values().At(0)
		}
	}
	require.Equal(t, map[string]int64{"": 4 << 20, "00f067aa0ba902b7": 8 << 20, "b7ad6b7169203331": 16 << 20}, bytes)
	require.Empty(t, requests[0].Dictionary.LinkTable[1].TraceId, "16 zeroes would be a series")
}

func TestRefusedAllocationsNameTheirSpan(t *testing.T) {
	record := func(s profile.Span) []byte {
		return (&Encoder{}).OOM(profile.OOM{Span: s}).ResourceLogs[0].ScopeLogs[0].LogRecords[0].SpanId
	}
	require.Equal(t, []byte{0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}, record(fixture.SpanIDs[0]))
	require.Empty(t, record(0))
}
