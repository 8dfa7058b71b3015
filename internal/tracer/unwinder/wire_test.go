// SPDX-License-Identifier: Apache-2.0

package unwinder

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/unwind"
)

// find is unwind_find and unwind_search of bpf/stack/rules.h.
func find(parts []Page, off uint16) unwind.Rule {
	p := &parts[0]
	part := 0
	for i := range maxParts - 1 {
		if i+1 < int(p.Parts) && p.Starts[i] <= off {
			part = i + 1
		}
	}
	p = &parts[part]
	low, high := 0, int(p.Rows)
	for range 6 {
		if middle := (low + high) / 2; p.At[middle] <= off {
			low = middle
		} else {
			high = middle
		}
	}
	return p.Rules[p.RuleOf[low]&^begins]
}

// randomRows are rows of one page: `rules` different rules, a row at each step-th byte on average.
func randomRows(rng *rand.Rand, begin uint64, rules, step int) []unwind.Row {
	rows := []unwind.Row{{Offset: begin}}
	for at := begin + 1; at < begin+pageBytes; at++ {
		if rng.IntN(step) == 0 {
			rows = append(rows, unwind.Row{Offset: at, Rule: unwind.Rule{Kind: unwind.FromSP, CFA: int32(8 * rng.IntN(rules))}})
		}
	}
	return rows
}

func TestTheWalkFindsTheRuleOfEachByte(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	many := 0
	for range 300 {
		begin := uint64(rng.IntN(100)) << pageBits
		rows := randomRows(rng, begin, 1+rng.IntN(40), 4+rng.IntN(60))
		parts := encode(rows, begin)
		if len(parts) > 1 {
			many++
		}
		if len(parts) == 1 && parts[0].Rows == 1 && len(rows) > 1 {
			continue // more than fit
		}
		next := 0
		for off := range pageBytes {
			for next+1 < len(rows) && rows[next+1].Offset <= begin+uint64(off) {
				next++
			}
			require.Equal(t, rows[next].Rule, find(parts, uint16(off)), "offset %d of %d rows in %d parts", off, len(rows), len(parts))
		}
	}
	assert.NotZero(t, many)
}

func TestAPageWithMoreRowsThanFitHasNone(t *testing.T) {
	parts := encode(randomRows(rand.New(rand.NewPCG(1, 2)), 0, 1000, 1), 0)
	assert.Equal(t, onePage(unwind.None), parts)
	assert.Equal(t, onePage(unwind.None), encode(nil, 0))
}
