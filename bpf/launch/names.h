/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_LAUNCH_NAMES_H
#define GPU_GADGETS_LAUNCH_NAMES_H

#include "call/demand.h"
#include "call/thread.h"
#include "process/quota.h"
#include "process/seed.h"

/*
 * names: names of kernels. A name is learned from the call that made the handle or
 * queried its name. Rows and events identify a kernel by a number:
 *
 *   FUNCTION_NAMED | hash   of its name, which is in names_by_function
 *   FUNCTION_STUB | address of its host stub, or handle, in the program
 *   the handle              if nothing better is known
 *
 * so that one kernel has one row in all contexts, and a reused handle does not mix two
 * kernels.
 */
#define FUNCTION_NAMED (1ULL << 63)
#define FUNCTION_STUB (1ULL << 62)
#define FUNCTION_BITS (FUNCTION_STUB - 1)

/* No number, but in function_by_handle, without FUNCTION_NAMED: its name is at this address. */
#define FUNCTION_REGISTERED (1ULL << 61)

#define KERNEL_NAME_BYTES 2048 /* with its NUL: template names are long */
#define MAX_KERNEL_NAMES 16384
#ifndef MAX_KERNEL_HANDLES
#define MAX_KERNEL_HANDLES 65536
#endif
#ifndef NEW_KERNEL_HANDLES
#define NEW_KERNEL_HANDLES (MAX_KERNEL_HANDLES / 4) /* of a tenant in a second */
#endif

struct kernel_name {
	__u32 length; /* without its NUL */
	__u32 cut;    /* 1: the name was longer */
	char text[KERNEL_NAME_BYTES];
};

/* Number of a kernel → its name. Written when the kernel is first seen, read by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, MAP_FLAGS_GROWING);
	__uint(max_entries, MAX_KERNEL_NAMES);
	__type(key, __u64);
	__type(value, struct kernel_name);
} names_by_function SEC(".maps");

struct kernel_key {
	__u64 process;
	__u64 handle; /* as CUfunction or CUkernel; or the program's own */
};

/* Handle → number of the kernel. LRU: those of ended processes age out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_KERNEL_HANDLES);
	__type(key, struct kernel_key);
	__type(value, __u64);
} function_by_handle SEC(".maps");

/* Scratch for one name. Only threads that resolve kernels have it. */
#ifdef LINUX_5_10
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kernel_name);
} name_scratch SEC(".maps");

static __always_inline struct kernel_name *name_room(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&name_scratch, &zero);
}
#else
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct kernel_name);
} name_scratch SEC(".maps");

static __always_inline struct kernel_name *name_room(void)
{
	return bpf_task_storage_get(&name_scratch, bpf_get_current_task_btf(), 0,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}
#endif

/* Returns the number by which rows identify a handle's kernel. */
static __always_inline __u64 function_of(__u64 process, __u64 handle)
{
	struct kernel_key key = { .process = process, .handle = handle };
	__u64 *known = bpf_map_lookup_elem(&function_by_handle, &key);

	return known ? *known : handle & FUNCTION_BITS;
}

/*
 * The same for a launch. `stub`: the function with which the runtime was called, 0 if the
 * runtime's launch functions are not probed; they are only while kernels have no name.
 * The next launch may bypass the runtime.
 */
static __always_inline __u64 function_launched(__u64 process, __u64 handle, __u64 stub)
{
	struct kernel_key key = { .process = process, .handle = handle };
	__u64 *known = bpf_map_lookup_elem(&function_by_handle, &key);

	if (stub)
		demand_answered(FACT_KERNEL, !known);
	if (known)
		return *known;
	if (!stub) {
		demand_ask(FACT_KERNEL);
		return handle & FUNCTION_BITS;
	}
	stub = FUNCTION_STUB | (stub & FUNCTION_BITS);
	if (QUOTA_COUNT(QUOTA_FUNCTIONS, NEW_KERNEL_HANDLES))
		bpf_map_update_elem(&function_by_handle, &key, &stub, BPF_ANY);
	return stub;
}

static __always_inline void function_learn(__u64 process, __u64 handle, __u64 function)
{
	struct kernel_key key = { .process = process, .handle = handle };

	if (!bpf_map_lookup_elem(&function_by_handle, &key) &&
	    !QUOTA_COUNT(QUOTA_FUNCTIONS, NEW_KERNEL_HANDLES))
		drop(DROP_KERNELS_FULL);
	else if (bpf_map_update_elem(&function_by_handle, &key, &function, BPF_ANY))
		drop(DROP_KERNELS_FULL);
}

/* Hashes the whole of `name`, which is padded with zeroes, word by word. */
GIVEN_POINTERS __u64 name_hash(struct kernel_name *name)
{
	const __u64 *words;
	__u64 hash;

	if (!name)
		return 0;
	words = (const __u64 *)name->text;
	hash = hash_seed() ^ name->cut;
	for (__u32 i = 0; i < KERNEL_NAME_BYTES / 8; i++)
		hash = (hash ^ words[i]) * 0x9fb21c651e98df25ULL + (hash >> 29);
	return mix64(hash) | FUNCTION_NAMED;
}

GIVEN_POINTERS int name_clear(struct kernel_name *name)
{
	if (!name)
		return 0;
	for (__u32 i = 0; i < KERNEL_NAME_BYTES / 8; i++)
		((volatile __u64 *)name->text)[i] = 0; /* clang does not emit a loop for memset */
	return 0;
}

/*
 * Stores the name at `address`. Returns its number, 0 if it could not be read. A name
 * that does not fit is truncated, and then applies to this handle only.
 */
static __always_inline __u64 name_store(__u64 process, __u64 handle, __u64 address, bool may_sleep)
{
	struct kernel_name *name = name_room();
	__u64 function;
	long length;
	int err;

	if (!name) {
		drop(DROP_SCRATCH);
		return 0;
	}
	name_clear(name);
	length = bpf_probe_read_user_str(name->text, sizeof(name->text), (void *)address);
#ifndef LINUX_5_10
	if (length < 0 && may_sleep && !bpf_copy_from_user(&name->length, 1, (void *)address)) {
		name->length = 0;
		length = bpf_probe_read_user_str(name->text, sizeof(name->text), (void *)address);
	}
#endif
	if (length <= 0) {
		drop(DROP_READ_ARGUMENT);
		return 0;
	}
	name->length = length - 1;
	name->cut = length == sizeof(name->text);
	function = name_hash(name);
	if (name->cut)
		function = mix64(function ^ mix64(handle ^ process)) | FUNCTION_NAMED;
	if (bpf_map_lookup_elem(&names_by_function, &function))
		return function;
	if (QUOTA_TAKE(QUOTA_KERNELS, MAX_KERNEL_NAMES)) {
		err = bpf_map_update_elem(&names_by_function, &function, name, BPF_NOEXIST);
		if (!err || err == -EEXIST)
			return function;
	}
	drop(DROP_KERNELS_FULL);
	return 0;
}

/* Stores the name at `address` for a handle. */
static __noinline int name_learn(__u64 process, __u64 handle, __u64 address, bool may_sleep)
{
	__u64 function = name_store(process, handle, address, may_sleep);

	if (function)
		function_learn(process, handle, function);
	return 0;
}

/*
 * A program registers the name of a kernel, which it does before it can launch it. The name is
 * read at the first launch, so that only those of kernels that are launched are stored.
 */
static __always_inline void function_register(__u64 process, __u64 handle, __u64 name)
{
	function_learn(process, handle, FUNCTION_REGISTERED | (name & (FUNCTION_REGISTERED - 1)));
}

static __always_inline bool function_is_registered(__u64 function)
{
	return !(function & FUNCTION_NAMED) && function & FUNCTION_REGISTERED;
}

/*
 * Returns the number of the kernel that was launched by a handle of the program. One that was
 * registered before attach, or evicted, is named by the program's symbol at the handle, if it
 * has one.
 */
static __noinline __u64 function_registered(__u64 process, __u64 handle, bool may_sleep)
{
	struct kernel_key key = { .process = process, .handle = handle };
	__u64 *known = bpf_map_lookup_elem(&function_by_handle, &key);

	if (known && function_is_registered(*known)) {
		name_learn(process, handle, *known & (FUNCTION_REGISTERED - 1), may_sleep);
		known = bpf_map_lookup_elem(&function_by_handle, &key);
	}
	if (known && !function_is_registered(*known))
		return *known;
	return FUNCTION_STUB | (handle & FUNCTION_BITS);
}

#endif
