/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_USDT_H
#define GPU_GADGETS_CALL_USDT_H

#include "call/attach_point.h"

/*
 * usdt: the arguments of a statically defined probe (<sys/sdt.h>). Where each of them is,
 * the compiler has noted in the library, and differs from place to place: user space
 * reads the note, and gives it as a site, whose number is the cookie.
 *
 * Go mirror: internal/elf/usdt (wire.go), checked against BTF.
 */
#define USDT_ARGUMENTS 8
#define USDT_SITES 64 /* places that have different arguments; a library has a few */

enum usdt_kind {
	USDT_NONE,
	USDT_CONSTANT, /* value */
	USDT_REGISTER, /* a register */
	USDT_MEMORY,   /* what is at a register + value + (index << shift) */
};

#define USDT_NO_INDEX 0xffff

struct usdt_argument {
	__s64 value;
	__u16 base;  /* offset of the register in struct pt_regs */
	__u16 index; /* the same; USDT_NO_INDEX: there is none */
	__u8 kind;
	__u8 bytes; /* 1, 2, 4 or 8 */
	__u8 is_signed;
	__u8 shift;
};

_Static_assert(sizeof(struct usdt_argument) == 16, "no padding");

struct usdt_site {
	struct usdt_argument argument[USDT_ARGUMENTS];
};

/* Site → where its arguments are. Written by the operator attach before it attaches. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, USDT_SITES);
	__type(key, __u32);
	__type(value, struct usdt_site);
} usdt_sites SEC(".maps");

static __always_inline struct usdt_site *usdt_site_of(struct pt_regs *ctx)
{
	__u32 site = bpf_get_attach_cookie(ctx);

	return bpf_map_lookup_elem(&usdt_sites, &site);
}

static __always_inline bool usdt_register(struct pt_regs *ctx, __u32 at, __u64 *to)
{
	/* The verifier refuses reads at an offset that it does not know. */
	return at <= sizeof(struct pt_regs) - sizeof(*to) &&
	       !bpf_probe_read_kernel(to, sizeof(*to), (void *)ctx + at);
}

/* Argument `n`, from 0 on, extended to 64 bits. False: it could not be read. */
static __noinline bool usdt_read(struct pt_regs *ctx, struct usdt_site *site, __u32 n, __u64 *to)
{
	struct usdt_argument *a;
	__u64 value = 0, index = 0;
	__u32 bytes, unused;

	if (!site || !to || n >= USDT_ARGUMENTS)
		return false;
	a = &site->argument[n];
	switch (a->kind) {
	case USDT_CONSTANT:
		value = a->value;
		break;
	case USDT_REGISTER:
		if (!usdt_register(ctx, a->base, &value))
			return false;
		break;
	case USDT_MEMORY:
		if (!usdt_register(ctx, a->base, &value))
			return false;
		if (a->index != USDT_NO_INDEX && !usdt_register(ctx, a->index, &index))
			return false;
		index = value + a->value + (index << (a->shift & 3));
		value = 0;
		/* What is behind it may be on a page that is not there. */
		bytes = a->bytes;
		if (bytes > sizeof(value) || bpf_probe_read_user(&value, bytes, (void *)index))
			return false;
		break;
	default:
		return false;
	}
	unused = 64 - 8 * (a->bytes & 15);
	if (unused & ~63U)
		return false;
	value <<= unused;
	*to = a->is_signed ? (__u64)((__s64)value >> unused) : value >> unused;
	return true;
}

#endif
