/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_TORCH_SAMPLING_H
#define GPU_GADGETS_TORCH_SAMPLING_H

/*
 * sampling: which blocks of PyTorch's pool are followed if following all of them would
 * cost too much. A block of s bytes is sampled with the probability p = 1 − e^(−s/m), as
 * if each byte were chosen with 1/m, and then represents s/p bytes and 1/p blocks. So
 * sums are unbiased for any sizes, and m may change at any time, because a block keeps
 * its weight until it is freed.
 *
 * p is a fraction of 2^32, rounded down to a 64th of a power of two; the weight is
 * computed from the same p, so that rounding costs accuracy but adds no bias.
 */
#define SAMPLING_CERTAIN (1ULL << 32)
/* Mean distance above which s × 2^32 might not fit: s < 16 m there. */
#define SAMPLING_MOST_BYTES (1ULL << 27)

/* [0]: m, the mean number of bytes between two samples; 0: every block is followed.
 * Written by user space at any time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} torch_sampling SEC(".maps");

/* 2^(−i/64) × 2^32, rounded to nearest; the first is 1 less, to fit. */
static const __u32 sampling_powers[64] = {
	0xffffffff, 0xfd3e0c0d, 0xfa83b2db, 0xf7d0df73, 0xf5257d15, 0xf281773c, 0xefe4b99c, 0xed4f301f,
	0xeac0c6e8, 0xe8396a50, 0xe5b906e7, 0xe33f8973, 0xe0ccdeec, 0xde60f482, 0xdbfbb798, 0xd99d15c2,
	0xd744fccb, 0xd4f35aac, 0xd2a81d92, 0xd06333db, 0xce248c15, 0xcbec14ff, 0xc9b9bd86, 0xc78d74c9,
	0xc5672a11, 0xc346ccda, 0xc12c4cca, 0xbf1799b6, 0xbd08a39f, 0xbaff5ab2, 0xb8fbaf47, 0xb6fd91e3,
	0xb504f334, 0xb311c413, 0xb123f582, 0xaf3b78ad, 0xad583eea, 0xab7a39b6, 0xa9a15ab5, 0xa7cd93b5,
	0xa5fed6aa, 0xa43515ae, 0xa2704303, 0xa0b05110, 0x9ef53261, 0x9d3ed9a7, 0x9b8d39ba, 0x99e04593,
	0x9837f052, 0x96942d37, 0x94f4efa9, 0x935a2b2f, 0x91c3d374, 0x9031dc43, 0x8ea4398b, 0x8d1adf5b,
	0x8b95c1e4, 0x8a14d575, 0x88980e81, 0x871f6197, 0x85aac368, 0x843a28c4, 0x82cd8699, 0x8164d1f4,
};

/* p × 2^32 for a block of `size` bytes, 1 … 2^32. */
static __always_inline __u64 sampling_probability(__u64 size, __u64 mean)
{
	__u64 x, whole, rest;

	if (!mean || size >= 16 * mean)
		return SAMPLING_CERTAIN;
	/* s/m × log2(e), in 64ths: log2(e) × 64 × 1024 = 94548.2 */
	x = (size * 94548 / mean) >> 10;
	whole = x >> 6;
	rest = x & 63;
	if (!rest && !whole)
		/* s/m below a 92nd: e^(−x) = 1 − x to a hundredth of it */
		return (size << 32) / mean ?: 1;
	return SAMPLING_CERTAIN - (sampling_powers[rest] >> whole);
}

/* Number of blocks that one sampled with p represents: integers with the mean 1/p. */
static __always_inline __u64 sampling_objects(__u64 p)
{
	__u64 objects = SAMPLING_CERTAIN / p, rest = SAMPLING_CERTAIN % p;

	return objects + (rest && bpf_get_prandom_u32() % p < rest);
}

#endif
