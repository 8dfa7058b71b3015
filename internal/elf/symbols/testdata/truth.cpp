// SPDX-License-Identifier: Apache-2.0

// A library whose functions are called by their addresses: exported and static ones, of namespaces,
// templates and assembly. That of assembly has no size in the tables.
#define NOINLINE __attribute__((noinline, used))

asm(R"(
.text
.p2align 6
.globl unsized
.type unsized,@function
unsized:
	.cfi_startproc
	nop
	nop
	ret
	.cfi_endproc
)");

namespace serving
{
namespace
{
NOINLINE int hidden(int n)
{
	return n * 7 + 1;
}
} // namespace

template <typename T> struct Pool {
	NOINLINE T take(T n) { return n / 3 + hidden(n); }
};

NOINLINE long shown(long n)
{
	return Pool<int>().take(n) + hidden(n);
}
} // namespace serving

static NOINLINE int plain(int n)
{
	return n ^ 5;
}

extern "C" int exported(int n)
{
	return plain(n) + serving::shown(n);
}
