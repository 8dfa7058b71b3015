// SPDX-License-Identifier: Apache-2.0

// Calls the driver from stacks of all kinds, and says what each of them was: what its own
// unwinder, backtrace(3), finds in the very function that calls.
//
// paths LIBCUDA CALLS SEED
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <vector>

#define NOINLINE __attribute__((noinline))
#define MOST 200

typedef int (*alloc_function)(uint64_t *, size_t);

static int (*cu_init)(unsigned);
static int (*cu_context)(void **, unsigned, int);
static int (*cu_current)(void *);
static alloc_function cu_alloc;
static void *context;

static std::mutex lock;
static std::map<std::vector<void *>, long> paths;

static thread_local uint64_t state;

static uint32_t next_random()
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> 33;
}

static volatile uint64_t sink;

// The function that calls: its own frame differs only in where it calls.
static NOINLINE void leaf()
{
	void *found[MOST];
	uint64_t pointer;
	int n = backtrace(found, MOST);

	{
		std::lock_guard<std::mutex> hold(lock);
		paths[std::vector<void *>(found + 1, found + n)]++;
	}
	if (cu_alloc(&pointer, 4096))
		abort();
	sink += pointer;
}

static NOINLINE void go(int depth);

static NOINLINE void plain(int depth)
{
	go(depth - 1);
	sink++;
}

static NOINLINE void large(int depth)
{
	volatile char buffer[9000];

	buffer[depth] = 1;
	go(depth - 1);
	sink += buffer[depth];
}

static NOINLINE void of_unknown_size(int depth)
{
	size_t n = 16 + next_random() % 3 * 64;
	char *buffer = (char *)alloca(n);

	memset(buffer, depth, n);
	go(depth - 1);
	sink += buffer[n / 2];
}

static NOINLINE void aligned(int depth)
{
	alignas(64) volatile char buffer[128];

	buffer[depth & 127] = 1;
	go(depth - 1);
	sink += (uintptr_t)buffer & 63;
	sink += buffer[depth & 127];
}

// Aligned and of unknown size: its frame is found through another register than its own.
static NOINLINE void aligned_of_unknown_size(int depth)
{
	alignas(64) volatile char buffer[128];
	size_t n = 16 + next_random() % 3 * 64;
	char *more = (char *)alloca(n);

	memset(more, depth, n);
	buffer[depth & 127] = 1;
	go(depth - 1);
	sink += buffer[depth & 127] + more[n / 2];
}

static NOINLINE long many_arguments(int depth, long a, long b, long c, long d, long e, long f, long g, long h)
{
	go(depth - 1);
	return a + b + c + d + e + f + g + h;
}

static NOINLINE void with_arguments(int depth)
{
	sink += many_arguments(depth, 1, 2, 3, 4, 5, 6, 7, depth);
	sink += depth;
}

static NOINLINE void tail(int depth)
{
	return go(depth - 1);
}

static NOINLINE void thrower(int depth)
{
	go(depth - 1);
	throw std::runtime_error("thrown");
}

struct on_unwinding {
	int depth;
	~on_unwinding() { go(depth); }
};

// The driver is called from a destructor while an exception passes, and from where it is caught.
static NOINLINE void exceptional(int depth)
{
	try {
		on_unwinding object = { depth / 2 };
		thrower(depth / 2);
	} catch (const std::exception &e) {
		go(depth / 2);
		sink += e.what()[0];
	}
}

static thread_local int sorted_depth;

static int compare(const void *a, const void *b)
{
	if (sorted_depth > 0) {
		int depth = sorted_depth;
		sorted_depth = 0;
		go(depth - 1);
	}
	return *(const int *)a - *(const int *)b;
}

static NOINLINE void through_libc(int depth)
{
	int numbers[] = { 3, 1, 2 };

	sorted_depth = depth;
	qsort(numbers, 3, sizeof(int), compare);
	sink += numbers[0];
}

static NOINLINE void through_templates(int depth)
{
	std::vector<int> numbers = { 5, 4, 3 };
	std::function<void(int)> f = [&](int n) {
		if (n == 5)
			go(depth - 1);
	};

	std::for_each(numbers.begin(), numbers.end(), f);
	sink += numbers.size();
}

static thread_local int handled_depth;

static void handler(int)
{
	int depth = handled_depth;

	handled_depth = 0;
	go(depth);
}

static NOINLINE void interrupted(int depth)
{
	handled_depth = depth / 2;
	raise(next_random() & 1 ? SIGUSR1 : SIGUSR2); // the second one on a stack of its own
	sink++;
}

// Interrupted anywhere, in its prologue too: the trap is after the first push.
extern "C" void interrupted_anywhere(void);
#if defined(__x86_64__)
asm(".text\n.globl interrupted_anywhere\n.type interrupted_anywhere,@function\n"
    "interrupted_anywhere:\n.cfi_startproc\n"
    "push %rbx\n.cfi_def_cfa_offset 16\n.cfi_offset %rbx,-16\n"
    "push %rbp\n.cfi_def_cfa_offset 24\n.cfi_offset %rbp,-24\n"
    "ud2\n"
    "xor %ebp,%ebp\n"
    "ud2\n"
    "pop %rbp\n.cfi_def_cfa_offset 16\n.cfi_restore %rbp\n"
    "ud2\n"
    "pop %rbx\n.cfi_def_cfa_offset 8\n.cfi_restore %rbx\n"
    "ud2\n"
    "ret\n.cfi_endproc\n.size interrupted_anywhere,.-interrupted_anywhere\n");
#else
extern "C" void interrupted_anywhere(void) {}
#endif

static thread_local int trapped_depth;

static void on_trap(int, siginfo_t *, void *context)
{
	go(trapped_depth);
#if defined(__x86_64__)
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
#endif
}

static NOINLINE void trapped(int depth)
{
	int before = trapped_depth;

	trapped_depth = depth / 3;
	interrupted_anywhere();
	trapped_depth = before;
	sink++;
}

static NOINLINE void deep(int depth)
{
	if (depth > 0 && next_random() % 8)
		deep(depth - 1);
	else
		go(depth - 1);
	sink++;
}

static void (*const shapes[])(int) = { plain, large, of_unknown_size, aligned, aligned_of_unknown_size,
				       with_arguments, tail, exceptional, through_libc, through_templates,
				       interrupted, trapped, deep };

static NOINLINE void go(int depth)
{
	if (depth <= 0)
		leaf();
	else
		shapes[next_random() % (sizeof(shapes) / sizeof(*shapes))](depth);
	sink++;
}

struct job {
	long calls;
	uint64_t seed;
};

static void work(long calls, uint64_t seed)
{
	stack_t alternate = {};

	alternate.ss_size = 1 << 18;
	alternate.ss_sp = malloc(alternate.ss_size);
	sigaltstack(&alternate, nullptr);
	for (long i = 0; i < calls; i++) {
		// Few different stacks: the same ones come again and again, at first with time for their
		// rules to be loaded.
		if (i < 400 && i % 8 == 0)
			usleep(5000);
		state = (seed + i % 400) * 0x9e3779b97f4a7c15ULL;
		go(next_random() % 9);
	}
}

static void *thread(void *argument)
{
	job *j = (job *)argument;

	cu_current(context);
	work(j->calls, j->seed);
	return nullptr;
}

static void on(int number, void (*f)(int), int flags)
{
	struct sigaction action = {};

	action.sa_handler = f;
	action.sa_flags = flags | SA_NODEFER;
	sigaction(number, &action, nullptr);
}

int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW);
	long calls = argc > 3 ? atol(argv[2]) : 0;
	uint64_t seed = argc > 3 ? atol(argv[3]) : 0;
	struct sigaction trap = {};

	if (!library)
		return 2;
	cu_init = (int (*)(unsigned))dlsym(library, "cuInit");
	cu_context = (int (*)(void **, unsigned, int))dlsym(library, "cuCtxCreate_v2");
	cu_current = (int (*)(void *))dlsym(library, "cuCtxSetCurrent");
	cu_alloc = (alloc_function)dlsym(library, "cuMemAlloc_v2");
	on(SIGUSR1, handler, 0);
	on(SIGUSR2, handler, SA_ONSTACK);
	trap.sa_sigaction = on_trap;
	trap.sa_flags = SA_SIGINFO | SA_NODEFER;
	sigaction(SIGILL, &trap, nullptr);
	if (cu_init(0) || cu_context(&context, 0, 0))
		return 3;
	puts("ready");
	fflush(stdout);
	if (getchar() != '\n') // until the probes are there
		return 4;
	{
		pthread_t other;
		job j = { calls / 2, seed + 1000 };

		pthread_create(&other, nullptr, thread, &j);
		work(calls - calls / 2, seed);
		pthread_join(other, nullptr);
	}
	for (auto &p : paths) {
		printf("%ld", p.second);
		for (void *frame : p.first)
			printf(" %p", frame);
		printf("\n");
	}
	printf("end\n");
	fflush(stdout);
	getchar();
	return 0;
}
