// SPDX-License-Identifier: Apache-2.0
//
// Allocates on the simulated driver while spans come and go, in several threads. The
// driver's tag of each call is the id of the span that was published, so that its
// journal is the truth. Arguments: the driver, the publishing library ("" when it is
// part of the program), threads, calls of each, mode (see below).
//
// Prints "ready" when the publisher is loaded and all threads run, waits for a line,
// makes the calls, prints "done", waits for a line.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct record {
	uint8_t trace_id[16], span_id[8], valid, flags;
	uint16_t attributes_bytes;
	uint8_t attributes[36];
} __attribute__((packed));

static int (*init)(unsigned), (*retain)(void **, int), (*current)(void *);
static int (*allocate)(uint64_t *, size_t), (*release)(uint64_t);
static void (*tag)(uint64_t);
static void (*set)(void *);
#ifdef OWN
void publish(void *record);
#endif

static int calls, hostile;
static char *edge; /* 27 readable bytes, then nothing */
static pthread_barrier_t ready, begin;
static atomic_long wild; /* allocations under a pointer that leads nowhere */

static uint64_t number(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

static uint64_t attach(struct record *r, uint64_t span)
{
	r->valid = 0;
	memset(r->trace_id, 7, sizeof(r->trace_id));
	for (int i = 0; i < 8; i++)
		r->span_id[i] = span >> (56 - 8 * i);
	r->attributes_bytes = hostile ? 0xffff : sizeof(r->attributes);
	r->valid = 1;
	set(r);
	return span;
}

/* One that no reader may follow, or believe. */
static int mislead(struct record *r, uint64_t random)
{
	void *nowhere[] = { (void *)1, (void *)0xdead000, (void *)~0ULL, edge,
			    (void *)0xffffffff80000000ULL, (void *)0x8000000000000000ULL };
	int n = random % 8;

	attach(r, random | 1);
	if (n < 6) {
		set(nowhere[n]);
		return 1;
	}
	r->valid = n == 6 ? 2 : 0xff;
	return 0;
}

static void work(uint64_t seed)
{
	struct record *r = calloc(2, sizeof(*r)); /* two: a nested span goes back */
	uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1, held[64] = {}, span = 0, outer;
	int is_wild = 0;

	for (int i = 0; i < calls; i++) {
		uint64_t random = number(&state);
		uint64_t *slot = &held[random >> 8 & 63];

		switch (random & 15) {
		case 0:
			span = attach(&r[0], number(&state) | 1);
			is_wild = 0;
			break;
		case 1:
			set(NULL);
			span = is_wild = 0;
			break;
		case 2: /* withdrawn by the flag instead */
			attach(&r[0], number(&state) | 1);
			r[0].valid = 0;
			span = is_wild = 0;
			break;
		case 3: /* nested, for one call */
			if (is_wild || !span || r[0].valid != 1)
				break;
			outer = span;
			tag(attach(&r[1], number(&state) | 1));
			if (!*slot)
				allocate(slot, 1 + (random >> 20 & 0xfffff));
			set(&r[0]);
			span = outer;
			continue;
		case 4:
			if (!hostile)
				break;
			span = 0;
			is_wild = mislead(&r[0], number(&state));
			break;
		}
		tag(span);
		if (*slot) {
			release(*slot);
			*slot = 0;
		} else {
			allocate(slot, 1 + (random >> 20 & 0xfffff));
			wild += is_wild;
		}
	}
	set(NULL);
}

static void *thread(void *argument)
{
	void *context;

	pthread_barrier_wait(&ready);
	pthread_barrier_wait(&begin);
	retain(&context, 0);
	current(context);
	work((uintptr_t)argument);
	return NULL;
}

static void wait_for_line(const char *say)
{
	char line[16];

	printf("%s\n", say);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(3);
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int count, is_fork;
	void *driver, *library, *context;

	if (argc != 6 || (count = atoi(argv[3])) < 1 || count > 64)
		return 2;
	calls = atoi(argv[4]);
	hostile = !strcmp(argv[5], "hostile");
	is_fork = !strcmp(argv[5], "fork");
	edge = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(edge + 4096, 4096);
	edge += 4096 - 27;
	memset(edge, 1, 27);
	driver = dlopen(argv[1], RTLD_NOW);
	if (!driver) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	*(void **)&init = dlsym(driver, "cuInit");
	*(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
	*(void **)&current = dlsym(driver, "cuCtxSetCurrent");
	*(void **)&allocate = dlsym(driver, "cuMemAlloc_v2");
	*(void **)&release = dlsym(driver, "cuMemFree_v2");
	*(void **)&tag = dlsym(driver, "simcuda_tag");
	pthread_barrier_init(&ready, NULL, count + 1);
	pthread_barrier_init(&begin, NULL, count + 1);
	/* Before the publisher: their tables have no room for it yet. */
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, thread, (void *)(uintptr_t)(i + 1));
	pthread_barrier_wait(&ready);
#ifdef OWN
	set = publish;
	library = argv[2];
#else
	library = dlopen(argv[2], RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	*(void **)&set = dlsym(library, "publish");
#endif
	if (!is_fork)
		init(0);
	wait_for_line("ready");
	if (is_fork) {
		/* The child is one thread, which uses what its parent was found to have. */
		pid_t child = fork();

		if (!child) {
			init(0);
			retain(&context, 0);
			current(context);
			work(100);
			wait_for_line("done");
			exit(0);
		}
		waitpid(child, NULL, 0);
		_exit(0);
	}
	pthread_barrier_wait(&begin);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	printf("wild %ld\n", wild);
	wait_for_line("done");
	return library ? 0 : 1;
}
