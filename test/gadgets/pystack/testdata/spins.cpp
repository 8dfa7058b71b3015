// SPDX-License-Identifier: Apache-2.0

// Computes, or sleeps, below stacks of all kinds, and says what each of them is: what backtrace(3)
// finds in the function itself. A library for spins.py, built without frame pointers.
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))
#define MOST 200

enum how { COMPUTE, SLEEP };

struct scene {
	how does;
	int ms;
};

static std::mutex lock;
static std::vector<std::pair<int, std::vector<void *>>> truth;
static volatile uint64_t sink;
static std::atomic<int> computed; // scenes
static thread_local scene now;

static uint64_t clock_ms()
{
	timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

// The processor's time of this thread: on a busy machine a scene has as much of it.
static uint64_t used_ms()
{
	timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000ULL + t.tv_nsec / 1000000;
}

// Is interrupted while it saves and restores registers, most of the time.
extern "C" NOINLINE uint64_t inner_saves(uint64_t a)
{
	uint64_t b = a + 1, c = a + 2, d = a + 3, e = a + 4;

	asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e) : : "rbx", "r12", "r13", "r14", "r15");
	return a ^ b ^ c ^ d ^ e;
}

extern "C" NOINLINE uint64_t inner_allocates(uint64_t n)
{
	char *p = (char *)alloca(16 + n % 5 * 48);

	p[n % 16] = n;
	asm volatile("" : : "r"(p) : "memory");
	return p[n % 16];
}

extern "C" NOINLINE void inner_throws(uint64_t n)
{
	char name[64 + n % 64];

	memset(name, n, sizeof(name));
	asm volatile("" : : "r"(name) : "memory");
	throw std::runtime_error("thrown");
}

static void one_turn(int scene, uint64_t n)
{
	static char zeroes[1 << 16];

	switch (scene % 6) {
	case 0:
		for (int i = 0; i < 1000; i++)
			sink = inner_saves(n + i);
		break;
	case 1:
		for (int i = 0; i < 1000; i++)
			sink = inner_allocates(n + i);
		break;
	case 2:
		try {
			inner_throws(n);
		} catch (const std::exception &) {
			sink = n;
		}
		break;
	case 3: {
		int zero = open("/dev/zero", O_RDONLY);

		for (int i = 0; i < 100; i++)
			sink += read(zero, zeroes, sizeof(zeroes));
		close(zero);
		break;
	}
	case 4:
		for (int i = 0; i < 10; i++)
			memset(zeroes, n + i, sizeof(zeroes));
		break;
	case 5:
		for (int i = 0; i < 1000; i++)
			sink += clock_ms();
	}
}

// The function of a scene: each has a symbol of its own.
template <int N> NOINLINE void spin()
{
	void *found[MOST];
	int n = backtrace(found, MOST);

	{
		std::lock_guard<std::mutex> hold(lock);
		truth.push_back({ N, std::vector<void *>(found, found + n) });
	}
	if (now.does == SLEEP) {
		usleep(now.ms * 1000);
		sink++;
		return;
	}
	for (uint64_t end = used_ms() + now.ms, i = 0; used_ms() < end; i++)
		one_turn(N, i);
	computed++;
	sink++;
}

#define SCENES 36
template <int N> struct table {
	static void call(int n)
	{
		if (n == N)
			spin<N>();
		else
			table<N - 1>::call(n);
		sink++;
	}
};
template <> struct table<-1> {
	static void call(int) {}
};

static NOINLINE void down(int depth, int n);

static NOINLINE void large(int depth, int n)
{
	volatile char buffer[9000];

	buffer[depth] = 1;
	down(depth - 1, n);
	sink += buffer[depth];
}

static NOINLINE void of_unknown_size(int depth, int n)
{
	char *buffer = (char *)alloca(16 + depth % 3 * 64);

	memset(buffer, depth, 16);
	down(depth - 1, n);
	sink += buffer[3];
}

static NOINLINE void aligned(int depth, int n)
{
	alignas(64) volatile char buffer[128];

	buffer[depth & 127] = 1;
	down(depth - 1, n);
	sink += buffer[depth & 127];
}

static NOINLINE void down(int depth, int n)
{
	if (depth <= 0)
		table<SCENES - 1>::call(n);
	else if (depth % 4 == 1)
		large(depth, n);
	else if (depth % 4 == 2)
		of_unknown_size(depth, n);
	else if (depth % 4 == 3)
		aligned(depth, n);
	else
		down(depth - 1, n);
	sink++;
}

static thread_local int signalled;

static void on_signal(int)
{
	down(3, signalled);
	sink++;
}

static int compares(const void *a, const void *b)
{
	if (now.ms && signalled >= 0) {
		int n = signalled;

		signalled = -1;
		down(2, n);
	}
	return *(const int *)a - *(const int *)b;
}

static NOINLINE void interrupted(int n, int flags)
{
	struct sigaction action = {};

	action.sa_handler = on_signal;
	action.sa_flags = flags;
	sigaction(SIGUSR2, &action, 0);
	signalled = n;
	raise(SIGUSR2);
	sink++;
}

static NOINLINE void on_other_stack(int n)
{
	stack_t old, other = {};

	other.ss_size = 1 << 18;
	other.ss_sp = mmap(0, other.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaltstack(&other, &old);
	interrupted(n, SA_ONSTACK);
	sigaltstack(&old, 0);
	munmap(other.ss_sp, other.ss_size);
}

static NOINLINE void sorted(int n)
{
	int numbers[8] = { 3, 1, 2, 5, 4, 8, 7, 6 };

	signalled = n;
	qsort(numbers, 8, sizeof(int), compares);
	sink += numbers[0];
}

extern "C" int scenes() { return SCENES; }

extern "C" void run(int n, int does, int ms)
{
	now = { (how)does, ms };
	switch (n / 6) {
	case 0:
		down(1, n);
		break;
	case 1:
		interrupted(n, 0);
		break;
	case 2:
		on_other_stack(n);
		break;
	case 3:
		sorted(n);
		break;
	default:
		down(6 * (n / 6 - 3) + n % 6, n);
	}
	sink++;
}

struct thread_start {
	int does, ms;
};

static void *all_scenes(void *p)
{
	thread_start *s = (thread_start *)p;

	for (int n = 0; n < SCENES; n++)
		run(n, s->does, s->ms);
	delete s;
	return 0;
}

static void *one_scene(void *p)
{
	uint64_t word = (uint64_t)p;

	run(word & 0xff, SLEEP, word >> 8);
	return 0;
}

// A thread of native code: computes in all scenes, one after the other, or one thread for each sleeps.
extern "C" void start_threads(int does, int ms)
{
	pthread_t thread;

	if (does == COMPUTE) {
		pthread_create(&thread, 0, all_scenes, new thread_start{ does, ms });
		pthread_detach(thread);
		return;
	}
	for (uint64_t n = 0; n < SCENES; n++) {
		pthread_create(&thread, 0, one_scene, (void *)(n | (uint64_t)ms << 8));
		pthread_detach(thread);
	}
}

extern "C" int recorded()
{
	std::lock_guard<std::mutex> hold(lock);
	return truth.size();
}

extern "C" int ended() { return computed; }

extern "C" const char *what_was()
{
	static std::string text;
	std::lock_guard<std::mutex> hold(lock);

	text = "[";
	for (auto &t : truth) {
		text += (text.size() > 1 ? ",[" : "[") + std::to_string(t.first);
		for (void *p : t.second)
			text += "," + std::to_string((uint64_t)p);
		text += "]";
	}
	text += "]";
	return text.c_str();
}
