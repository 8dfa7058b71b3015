/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_STACK_NATIVE_H
#define GPU_GADGETS_STACK_NATIVE_H

#include "stack/stack.h"

/*
 * native: the native callers of the probed function, by frame pointers. The
 * immediate caller is always right (its return address is where the probe's
 * return lands). Further ones are only as good as the frame pointers of the
 * libraries in between, so each must lie in executable memory of the process: a
 * chain that leaves it is cut there, else garbage would make every call a new
 * stack.
 *
 * Better, where user space loads them, are the rules of the files: stack/unwind.h.
 */

/* Most chains end sooner; and the verifier follows each step of each program that walks one. */
#define NATIVE_CHAIN_FRAMES 32

/* A frame further away than this is not on the same stack. */
#define NATIVE_STACK_BYTES (8ULL << 20)

/*
 * On arm64 a return address on the stack may be signed: the bits above those of
 * addresses, of which user space has 48 unless it asks for more by a hint, hold a
 * code. Kernels keep it out of TTBR0's range likewise (user_pac_mask of PTRACE).
 */
#if defined(__TARGET_ARCH_arm64)
#define NATIVE_ADDRESS(word) ((word) & ((1ULL << 48) - 1))
#else
#define NATIVE_ADDRESS(word) (word)
#endif

struct code_key {
	__u64 process;
	__u64 address;
};

/*
 * Return address → 1 if executable, 0 if not. Written and read by the walk;
 * saves looking a mapping up for every frame. LRU: library code is a small set,
 * garbage is not.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct code_key);
	__type(value, __u32);
} code_by_address SEC(".maps");

/* 1: the address is in code; 0: it is not; -EBUSY: it does not seem so, for another try. */
#ifdef LINUX_5_10
static __always_inline long native_is_code(__u64 process, __u64 address)
{
	return 0; /* bpf_find_vma() came with 5.17 */
}
#else
#define NATIVE_VM_EXEC 0x4 /* include/linux/mm.h */

static long native_vma(struct task_struct *task, struct vm_area_struct *vma, __u32 *executable)
{
	*executable = (vma->vm_flags & NATIVE_VM_EXEC) != 0;
	return 0;
}

/*
 * Whether a call is before the address, as before one that a call returns to. A global function: the
 * verifier follows it once.
 */
__noinline int native_follows_call(__u64 address)
{
#if defined(__TARGET_ARCH_x86)
	__u8 code[8] = {};

	if (bpf_probe_read_user(code, sizeof(code), (void *)(address - sizeof(code))))
		return 0;
	/* call rel32; call r/m64 is ff /2 with its ModRM byte, and a SIB byte, and a displacement */
#define NATIVE_CALL_OF(bytes) (code[8 - (bytes)] == 0xff && (code[9 - (bytes)] & 0x38) == 0x10)
	return code[3] == 0xe8 || NATIVE_CALL_OF(2) || NATIVE_CALL_OF(3) || NATIVE_CALL_OF(4) ||
	       NATIVE_CALL_OF(6) || NATIVE_CALL_OF(7);
#else
	__u32 code = 0;

	if (bpf_probe_read_user(&code, sizeof(code), (void *)(address - sizeof(code))))
		return 0;
	/* bl; blr, and its forms that authenticate the address */
	return code >> 26 == 0x25 || (code & 0xfefff000) == 0xd63f0000;
#endif
}

static __always_inline long native_is_code(__u64 process, __u64 address)
{
	struct code_key key = { .process = process, .address = address };
	__u32 *known = bpf_map_lookup_elem(&code_by_address, &key);
	__u32 executable = 0;
	long err;

	if (known)
		return *known;
	err = bpf_find_vma(bpf_get_current_task_btf(), address, native_vma, &executable, 0);
	if (err == -EBUSY) /* another thread changes the mappings */
		return native_follows_call(address) ? 1 : err;
	bpf_map_update_elem(&code_by_address, &key, &executable, BPF_ANY);
	return executable;
}
#endif

/* The frames that a call has in any case: an address in the function, and where it returns to. */
static __always_inline void native_called(struct stack *s, __u64 function, __u64 caller)
{
	s->native[0] = function;
	s->native[1] = caller;
	s->native_count = 2;
}

/*
 * Fills s->native for a function that has just returned with these registers.
 * `function` is an address in it, `caller` where it returns to. What s->native holds
 * from before must be of the same process, or 0: a frame that is where one was before
 * is in code without looking, which is most of them in a loop. What was none, where the
 * chain was cut, is kept inverted.
 */
static __always_inline void native_unwind(struct stack *s, __u64 process, __u64 function,
					  __u64 caller, __u64 sp, __u64 fp)
{
	__u64 frame[2];
	__u32 n = 2;
	long code;

	native_called(s, function, caller);
	while (n < NATIVE_CHAIN_FRAMES) {
		if (fp < sp || fp - sp > NATIVE_STACK_BYTES || fp & 7)
			break;
		if (bpf_probe_read_user(frame, sizeof(frame), (void *)fp))
			break;
		frame[1] = NATIVE_ADDRESS(frame[1]);
		if (frame[1] < 4096 || frame[1] >> 63 || s->native[n] == ~frame[1])
			break;
		code = s->native[n] == frame[1] ? 1 : native_is_code(process, frame[1]);
		if (!code)
			s->native[n] = ~frame[1];
		if (code <= 0)
			break;
		s->native[n++] = frame[1];
		sp = fp + sizeof(frame); /* callers lie above */
		fp = frame[0];
	}
	if (n == NATIVE_CHAIN_FRAMES)
		s->flags |= STACK_NATIVE_TRUNCATED;
	s->native_count = n;
}

#endif
