// SPDX-License-Identifier: Apache-2.0

package profile

// Sizes of PyTorch's pool, in bytes (c10/cuda/CUDACachingAllocator.cpp). What it calls small goes by itself: blocks of up to
// SmallBlock (kSmallSize), from segments, or pieces of expandable ones, of SmallSegment (kSmallBuffer). For larger
// blocks, the pieces of expandable segments are of LargePiece (kLargeBuffer).
const (
	SmallBlock   = 1 << 20
	SmallSegment = 2 << 20
	LargePiece   = 20 << 20
)
