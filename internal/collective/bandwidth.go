// SPDX-License-Identifier: Apache-2.0

package collective

import "time"

// Bandwidth of operations, as nccl-tests define it (doc/PERFORMANCE.md there), in bytes
// per second: alg is the size of the problem divided by its time, bus the part that each
// link of a ring carries, which does not depend on the number of ranks. elements are the
// counts of the calls, in bytes; elapsed is their time.
//
// Zero if unknown: without a time, or without the number of ranks if it matters.
func Bandwidth(kind Kind, ranks int, elements uint64, elapsed time.Duration) (alg, bus float64) {
	if elapsed <= 0 {
		return 0, 0
	}
	n := float64(ranks)
	alg = float64(elements) / elapsed.Seconds()
	switch kind {
	case Broadcast, Reduce, Send, Recv:
		return alg, alg
	case AllReduce:
		if ranks < 1 {
			return alg, 0
		}
		return alg, alg * 2 * (n - 1) / n
	case AllGather, ReduceScatter, AllToAll, Gather, Scatter:
		// Their count is a rank's share.
		if ranks < 1 {
			return 0, 0
		}
		return alg * n, alg * (n - 1)
	}
	return 0, 0
}
