/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_CALL_ATTACH_POINT_H
#define GPU_GADGETS_CALL_ATTACH_POINT_H

/*
 * attach_point: one exported function that a gadget wants probed.
 *
 * A gadget lists its points in the read-only section ".rodata.attach"; the
 * attach operator reads the table out of the compiled object (it never runs in
 * the kernel), finds the library in the address space of each process, and
 * attaches the generic programs of ATTACH_PROGRAMS with `cookie`. Unmodified ig
 * ignores the table and attaches the stock sections.
 *
 * library: file name up to ".so", e.g. "libcuda" (matches libcuda.so.1).
 * symbol:  exported name, not demangled. Both are NUL-terminated.
 *
 * Go mirror: internal/ig.AttachPoint, checked against BTF.
 */
struct attach_point {
	char library[32];
	char symbol[128];
	__u32 cookie;
	__u32 flags;
};

enum attach_point_flag {
	/* Probe the return as well, with the exit program. */
	ATTACH_EXIT = 1,
	/* Probe the entry with a program of its own, which may sleep (linux 6.0). */
	ATTACH_ENTRY_SLEEPS = 2,
	/* `symbol` is PROVIDER:NAME of a statically defined probe (call/usdt.h), and `cookie`
	 * the index of its program in attach_usdt. */
	ATTACH_USDT = 4,
	/* Probe it in one process at a time, while facts of the kind ATTACH_FACT() of that
	 * process are missing (call/demand.h). */
	ATTACH_ON_DEMAND = 8,
	/* Attach to it after the points without this flag: it allocates what they free, and an
	 * allocation that is recorded needs its free to be seen. */
	ATTACH_LAST = 16,
	/* Where a budget asks, probe it a part of the time only (launch/windows.h). */
	ATTACH_IN_WINDOWS = 32,
	/* The program learns where the library has its thread-local variables: the cookie,
	 * from bit 8 on, is an index of tls_blocks (call/backward.h); 0: not known. */
	ATTACH_THREAD_LOCALS = 64,
	/* Probe the library only in processes that have mapped one without this flag, too. */
	ATTACH_BESIDE = 128,
};

/* What a point with ATTACH_ON_DEMAND teaches: enum fact, in its flags. */
#define ATTACH_FACT(fact) (ATTACH_ON_DEMAND | (fact) << 16)

#define ATTACH_POINTS SEC(".rodata.attach")

/*
 * ATTACH_PROGRAMS declares where the operator finds the generic programs: one
 * program array each, because the kernel refuses to mix expected attach types
 * and sleepable with other programs. Looking up index 0 gives the program.
 */
#define ATTACH_PROGRAM(array, program)                        \
	struct {                                              \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY);        \
		__uint(max_entries, 1);                       \
		__uint(key_size, 4);                          \
		__array(values, int(struct pt_regs *));       \
	} array SEC(".maps") = { .values = { [0] = &program } }

#define ATTACH_PROGRAMS(enter_perf, exit_perf, enter_multi, exit_multi) \
	ATTACH_PROGRAM(attach_enter, enter_perf);                       \
	ATTACH_PROGRAM(attach_exit, exit_perf);                         \
	ATTACH_PROGRAM(attach_enter_multi, enter_multi);                \
	ATTACH_PROGRAM(attach_exit_multi, exit_multi)

/* The programs of points with ATTACH_ENTRY_SLEEPS. */
#define ATTACH_SLEEPING_PROGRAMS(enter_perf, enter_multi)         \
	ATTACH_PROGRAM(attach_sleeping_enter, enter_perf);       \
	ATTACH_PROGRAM(attach_sleeping_enter_multi, enter_multi)

/*
 * Without cookies, which a uprobe program has from Linux 5.15 on, each point has
 * an entry program of its own: the index is that of its row in the table.
 */
#define ATTACH_PROGRAMS_OF_POINTS(count, programs, exit_perf)  \
	struct {                                              \
		__uint(type, BPF_MAP_TYPE_PROG_ARRAY);        \
		__uint(max_entries, count);                   \
		__uint(key_size, 4);                          \
		__array(values, int(struct pt_regs *));       \
	} attach_enter_points SEC(".maps") = { .values = { programs } }; \
	ATTACH_PROGRAM(attach_exit, exit_perf)

/*
 * attach_mode: which programs will be attached, set by the operator before they
 * are loaded. The verifier skips code that a constant rules out, and each copy of the
 * exit program takes it 0.2 s. ig sets variables by the types of
 * names with its prefix.
 */
enum attach_mode {
	ATTACH_STOCK, /* unmodified ig: the programs of the stock sections */
	ATTACH_PERF,
	ATTACH_MULTI,
};

const volatile __u32 attach_mode = ATTACH_STOCK;
const volatile __u32 gadget_var_attach_mode;

#endif
