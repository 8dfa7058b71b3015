/* SPDX-License-Identifier: Apache-2.0 */

/* The environment of the library: its settings, its faults, its journal, the driver below. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exports.h"

/* As the real library has it, and where its version is found in the file. */
#define VERSION 22907
__attribute__((used)) static const char version_text[] = "NCCL version 2.29.7+simulated";

NCCL(GetVersion)(int *out)
{
	if (!out)
		return ncclInvalidArgument;
	*out = VERSION;
	return ncclSuccess;
}

__attribute__((visibility("default"))) const char *ncclGetErrorString(ncclResult_t r)
{
	static const char *const texts[] = {"no error", "unhandled cuda error", "unhandled system error",
					    "internal error", "invalid argument", "invalid usage",
					    "remote process exited or there was a network error",
					    "NCCL operation in progress"};
	return (unsigned)r < sizeof(texts) / sizeof(*texts) ? texts[r] : "unknown result code";
}

/* ------------------------------------------------------------------ the driver */

static struct {
	pthread_once_t once;
	void (*later)(uint64_t, bool (*)(void *), void *);
	int (*device)(void);
} driver = {.once = PTHREAD_ONCE_INIT};

#ifdef RCCL
#define DRIVER "libamdhip64.so.6"
#define DRIVER_SYMBOL(name) "simhip_" name
#else
#define DRIVER "libcuda.so.1"
#define DRIVER_SYMBOL(name) "simcuda_" name
#endif

static void driver_find(void)
{
	void *lib = dlopen(DRIVER, RTLD_NOW | RTLD_NOLOAD);
	if (!lib)
		lib = dlopen(DRIVER, RTLD_NOW);
	if (lib) {
		*(void **)&driver.later = dlsym(lib, DRIVER_SYMBOL("later"));
		*(void **)&driver.device = dlsym(lib, DRIVER_SYMBOL("device"));
	}
	if (!driver.later)
		fprintf(stderr, "simnccl: no simulated " DRIVER
				" in this process: operations are done when their call returns\n");
}

int current_device(void)
{
	pthread_once(&driver.once, driver_find);
	return driver.device ? driver.device() : -1;
}

void put_on_stream(uint64_t stream, bool (*is_done)(void *), void *arg)
{
	unsigned turn = 0;
	pthread_once(&driver.once, driver_find);
	if (driver.later)
		driver.later(stream, is_done, arg);
	else
		while (!is_done(arg))
			world_pause(&turn);
}

/* --------------------------------------------------------------------- faults */

static const char *const op_names[] = NCCL_OP_NAMES;

/* kind:rank:operation:number[:milliseconds] */
static struct fault {
	char kind[8];
	int rank, op;
	uint64_t number, ms;
} fault[16];
static size_t fault_count;

void faults_setup(void)
{
	const char *all = getenv("SIMNCCL_FAULT");
	char op[32];
	for (; all && *all && fault_count < 16; all = strchr(all, ';') ? strchr(all, ';') + 1 : NULL) {
		struct fault *f = &fault[fault_count];
		unsigned long long number = 0, ms = 0;
		int n = sscanf(all, "%7[a-z]:%d:%31[A-Za-z]:%llu:%llu", f->kind, &f->rank, op, &number, &ms);
		for (f->op = 0; f->op < NCCL_OP_COUNT && n >= 4; f->op++)
			if (!strcmp(op_names[f->op], op))
				break;
		if (n < 4 || f->op == NCCL_OP_COUNT) {
			fprintf(stderr, "simnccl: SIMNCCL_FAULT: not understood: %s\n", all);
			continue;
		}
		f->number = number;
		f->ms = ms;
		fault_count++;
	}
}

void faults(int kind, size_t *count, int *root, int size)
{
	uint64_t n = atomic_fetch_add(&sim.calls[kind & 15], 1) + 1;
	for (size_t i = 0; i < fault_count; i++) {
		struct fault *f = &fault[i];
		if (f->op != kind || f->number != n || f->rank != atomic_load(&sim.rank))
			continue;
		if (!strcmp(f->kind, "sleep"))
			nanosleep(&(struct timespec){(time_t)(f->ms / 1000), (long)(f->ms % 1000) * 1000000}, NULL);
		else if (!strcmp(f->kind, "die"))
			raise(SIGKILL);
		else if (!strcmp(f->kind, "stop"))
			raise(SIGSTOP);
		else if (!strcmp(f->kind, "count"))
			++*count;
		else if (!strcmp(f->kind, "root") && *root >= 0)
			*root = (*root + 1) % size;
	}
}

/* -------------------------------------------------------------------- journal */

const char journal_program[] = "simnccl";
const char journal_api_names[] = "(none)\0"
#define X(symbol, ...) "nccl" #symbol "\0"
	NCCL_APIS(X)
#undef X
	;
const uint32_t journal_names_bytes = sizeof(journal_api_names);
#define X(symbol, ...) +1
const uint32_t journal_api_count = 1 NCCL_APIS(X);
#undef X

static struct {
	pthread_mutex_t lock;
	uint64_t seq;
} notes = {.lock = PTHREAD_MUTEX_INITIALIZER};

void note(const struct call *c, ncclResult_t result)
{
	if (!journal_on())
		return;
	struct journal_record r = {
		.tag = thread.tag, .ptr = (uint64_t)c->comm, .size = c->count, .alloc_seq = c->match,
		.context = valid(c->comm) ? c->comm->commHash : 0,
		.device = valid(c->comm) ? c->comm->rank : -1,
		.tid = (uint32_t)gettid(), .result = result, .api = (uint16_t)c->api,
		.type = JOURNAL_COLLECTIVE, .kind = (uint8_t)c->type,
		.flags = (uint8_t)(JOURNAL_FIRST | (c->grouped ? JOURNAL_NESTED : 0)),
	};
	r.grid[0] = (uint32_t)c->peer;
	r.grid[1] = (uint32_t)c->reduction;
	r.stream = c->stream;
	r.start_ns = c->start_ns;
	pthread_mutex_lock(&notes.lock);
	r.seq = ++notes.seq;
	journal_write(&r);
	pthread_mutex_unlock(&notes.lock);
}

#define EXPORTED __attribute__((visibility("default")))

/* The tag of the calling thread's next calls, written into their records. */
EXPORTED void simnccl_tag(uint64_t tag)
{
	thread.tag = tag;
}

EXPORTED void simnccl_flush(void)
{
	pthread_mutex_lock(&notes.lock);
	journal_flush();
	pthread_mutex_unlock(&notes.lock);
}

static uint64_t number(const char *name)
{
	const char *text = getenv(name);
	return text ? strtoull(text, NULL, 0) : 0;
}

static void after_fork_in_child(void)
{
	pthread_mutex_init(&notes.lock, NULL);
	notes.seq = 0;
	atomic_store(&sim.rank, -1);
	journal_forked();
}

__attribute__((constructor)) static void load(void)
{
	sim.latency_ns = number("SIMNCCL_LATENCY_US") * 1000;
	sim.bytes_per_second = number("SIMNCCL_BYTES_PER_SECOND");
	journal_setup(getenv("SIMNCCL_JOURNAL"), 0, 0);
	faults_setup();
	memory_setup();
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

__attribute__((destructor)) static void unload(void)
{
	simnccl_flush();
}
