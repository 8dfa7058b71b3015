// SPDX-License-Identifier: Apache-2.0

// Package shard divides nodes among several exporters, so that each node is of exactly one of
// them and no exporter needs to know the others.
//
// Profiles and metrics are of one node each, so they are divided by node. A verdict on ranks of
// NCCL needs all ranks of a job, whose nodes are in any shard: the first shard follows the ranks
// of all nodes, and no other one does.
package shard

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Shard is one of several exporters. The zero value is the only one.
type Shard struct{ Index, Of int }

// MaxShards bounds the number of exporters.
const MaxShards = 1024

// ErrSyntax is returned by Parse.
var ErrSyntax = errors.New("want INDEX/SHARDS such as 0/4, with an index from 0 to SHARDS - 1")

// Parse reads 0/4: the first of four.
func Parse(text string) (Shard, error) {
	index, of, ok := strings.Cut(text, "/")
	i, err := strconv.Atoi(index)
	if !ok || err != nil {
		return Shard{}, ErrSyntax
	}
	n, err := strconv.Atoi(of)
	if err != nil || n < 1 || n > MaxShards || i < 0 || i >= n {
		return Shard{}, ErrSyntax
	}
	return Shard{i, n}, nil
}

// String is the text that Parse reads.
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Index, max(s.Of, 1)) }

// Has reports whether a node is of this shard: that with the highest hash of both (rendezvous
// hashing). If shards are added, only the nodes of the new ones move.
func (s Shard) Has(node string) bool {
	best, highest := 0, uint64(0)
	for i := range s.Of {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d/%s", i, node)
		if sum := mix(h.Sum64()); i == 0 || sum > highest {
			best, highest = i, sum
		}
	}
	return best == s.Index
}

// mix is splitmix64's finaliser: names that differ in their last letter have hashes that differ
// in few bits otherwise.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Judges reports whether the ranks of all nodes are of this shard.
func (s Shard) Judges() bool { return s.Index == 0 }
