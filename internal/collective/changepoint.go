// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"cmp"
	"math"
	"slices"
)

// changePoint finds the most likely place at which the level of a series changed: the values
// before `at` differ from those from there on. p is the probability that a series without a
// change looks so, at most 1.
//
// It is the test of A. N. Pettitt, A Non-Parametric Approach to the Change-Point Problem,
// Journal of the Royal Statistical Society C 28(2), 1979, pages 126 to 135: of all places,
// that at which the ranks of the values on both sides differ most, K = max |U|, with
// p ≈ 2 exp(−6 K² / (n³ + n²)). Only the order of the values counts, so that some
// checkpoints that take a hundred times as long as a step change nothing.
func changePoint(values []float64) (at int, p float64) {
	n := len(values)
	if n < 2 {
		return 0, 1
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	rank := make([]float64, n)
	for i := 0; i < n; {
		j := i
		for j+1 < n && values[order[j+1]] == values[order[i]] {
			j++
		}
		for k := i; k <= j; k++ { // equal values share their mean rank
			rank[order[k]] = float64(i+j)/2 + 1
		}
		i = j + 1
	}
	most, sum := 0.0, 0.0
	for t := range n - 1 {
		sum += rank[t]
		if u := math.Abs(2*sum - float64(t+1)*float64(n+1)); u > most {
			most, at = u, t+1
		}
	}
	cube := float64(n)*float64(n)*float64(n) + float64(n)*float64(n)
	return at, min(1, 2*math.Exp(-6*most*most/cube))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
