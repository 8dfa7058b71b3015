/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the driver, from more places than there is room for, and from pages that do not come. */
#define _GNU_SOURCE
#include "hostile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int allocate(unsigned long *pointer, size_t bytes);
typedef int release(unsigned long pointer);
typedef int synchronize(void);

static allocate *cu_alloc;
static release *cu_free;
static synchronize *cu_wait;

static void start_driver(const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	unsigned long context;

	if (!library)
		fail(path);
	int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(library, "cuInit");
	int (*retain)(unsigned long *, int) =
		(int (*)(unsigned long *, int))dlsym(library, "cuDevicePrimaryCtxRetain");
	int (*set)(unsigned long) = (int (*)(unsigned long))dlsym(library, "cuCtxSetCurrent");

	cu_alloc = (allocate *)dlsym(library, "cuMemAlloc_v2");
	cu_free = (release *)dlsym(library, "cuMemFree_v2");
	cu_wait = (synchronize *)dlsym(library, "cuCtxSynchronize");
	if (!init || !retain || !set || !cu_alloc || !cu_free || !cu_wait || init(0) ||
	    retain(&context, 0) || set(context))
		fail("start the driver");
}

#define MOST_HELD 300000
static unsigned long held, allocated;

/* What a leaf calls: it waits for the GPU instead of allocating. */
static int waits;

static void leaf(void)
{
	unsigned long pointer;

	if (waits) {
		cu_wait();
		return;
	}
	if (cu_alloc(&pointer, 4096))
		return;
	allocated++;
	/* Most are held, up to more than there is room for: they take room among the live pointers, too. */
	if (allocated % 8 == 0 || held >= MOST_HELD)
		cu_free(pointer);
	else
		held++;
}

/* A stack for each number: which of two places calls the next level is a bit. */
__attribute__((noinline)) static void level(unsigned long number, int depth)
{
	if (depth == 0) {
		leaf();
	} else if (number & 1) {
		level(number >> 1, depth - 1);
		__asm__ volatile("" ::: "memory");
	} else {
		level(number >> 1, depth - 1);
		__asm__ volatile("nop" ::: "memory");
	}
}

/* `count` different stacks. */
void attack_stacks(const struct order *o)
{
	char line[64];

	start_driver(o->driver);
	wait_until_attached();
	for (unsigned long n = 0; n < o->count; n++)
		level(n, 20);
	snprintf(line, sizeof(line), "%lu allocations", allocated);
	say(line);
}

/* The same for waits, in rounds as long as a line asks for another one: the first may be over before the rules are
 * read by which the stacks are unwound. */
void attack_waits(const struct order *o)
{
	waits = 1;
	start_driver(o->driver);
	wait_until_attached();
	do {
		for (unsigned long n = 0; n < o->count; n++)
			level(n, 20);
		say("round");
	} while (line_is("again"));
}

/* `count` processes that allocate once, each in a root directory of its own, and stay until this one ends. */
void attack_callers(const struct order *o)
{
	int hold[2], done[2];
	char byte = 0, root[4200];

	if (!dlopen(o->driver, RTLD_NOW) || pipe(hold) || pipe(done))
		fail(o->driver);
	wait_until_attached();
	for (unsigned long n = 0; n < o->count; n++) {
		pid_t child = fork();

		if (child < 0)
			fail("fork");
		if (child == 0) {
			close(hold[1]);
			snprintf(root, sizeof(root), "%s/%lu", o->dir, n);
			if (mkdir(root, 0755) || chroot(root))
				fail(root);
			start_driver(o->driver); /* which it has */
			leaf();
			if (write(done[1], &byte, 1) == 1 && read(hold[0], &byte, 1) == 0)
				_exit(0);
			_exit(1);
		}
		if (read(done[0], &byte, 1) != 1)
			fail("wait for a process");
	}
}

/* `count` processes one after another, which all have the same pid: each allocates once, and ends. */
void attack_reuse(const struct order *o)
{
	struct clone_args how = { .exit_signal = SIGCHLD };
	char line[64];
	pid_t pid = 0;
	int status;

	if (!dlopen(o->driver, RTLD_NOW))
		fail(o->driver);
	wait_until_attached();
	for (unsigned long n = 0; n < o->count; n++) {
		pid_t child = (pid_t)syscall(SYS_clone3, &how, sizeof(how));

		if (child < 0)
			fail("clone3");
		if (child == 0) {
			start_driver(o->driver); /* which it has */
			leaf();
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child || status)
			fail("wait for a process");
		pid = child;
		how.set_tid = (unsigned long)&pid;
		how.set_tid_size = 1;
	}
	snprintf(line, sizeof(line), "%d", pid);
	say(line);
}

/* The frame pointer leads to a page that its fault handler withholds for `count` ms. */
static void *withheld;

static void *call_from_there(void *unused)
{
	static unsigned long pointer;
	unsigned long *to = &pointer, bytes = 4096;

	(void)unused;
#if defined(__x86_64__)
	__asm__ volatile("mov %%rbp, %%r12\n\t"
			 "mov %%rsp, %%r13\n\t"
			 "sub $128, %%rsp\n\t"
			 "and $-16, %%rsp\n\t"
			 "mov %[page], %%rbp\n\t"
			 "call *%[alloc]\n\t"
			 "mov %%r13, %%rsp\n\t"
			 "mov %%r12, %%rbp\n\t"
			 : "+D"(to), "+S"(bytes)
			 : [page] "r"(withheld), [alloc] "r"(cu_alloc)
			 : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "memory",
			   "cc");
#else
	cu_alloc(to, bytes);
#endif
	return NULL;
}

void attack_pages(const struct order *o)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register place = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage zero;
	pthread_t thread;
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	start_driver(o->driver);
	wait_until_attached();
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) {
		printf("no userfaultfd: %s\n", strerror(errno));
		return;
	}
	withheld = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	place.range = (struct uffdio_range){ (unsigned long)withheld, 1 << 16 };
	if (withheld == MAP_FAILED || ioctl(fd, UFFDIO_REGISTER, &place))
		fail("userfaultfd");
	if (pthread_create(&thread, NULL, call_from_there, NULL))
		fail("thread");
	usleep((useconds_t)o->count * 1000);
	zero = (struct uffdio_zeropage){ .range = place.range };
	if (ioctl(fd, UFFDIO_ZEROPAGE, &zero))
		fail("give the pages");
	pthread_join(thread, NULL);
}
