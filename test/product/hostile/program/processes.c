/* SPDX-License-Identifier: Apache-2.0 */
/* Many mappings, threads and processes, and what they call themselves. */
#define _GNU_SOURCE
#include "hostile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* `count` mappings of code of a library, each an event of its own. */
void attack_mappings(const struct order *o)
{
	int fd = open(o->driver, O_RDONLY | O_CLOEXEC);
	unsigned long n;

	if (fd < 0)
		fail(o->driver);
	/* Each maps the first page, so that neighbours do not become one. */
	for (n = 0; n < o->count; n++)
		if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			break; /* vm.max_map_count */
	printf("%lu mappings\n", n);
	close(fd);
}

/* `count` times dlopen and dlclose, of as many as 64 files in turn. */
void attack_dlopens(const struct order *o)
{
	char path[64][4200];
	unsigned char *b;
	size_t size;

	b = read_file(o->driver, &size);
	for (int n = 0; n < 64; n++) {
		snprintf(path[n], sizeof(path[n]), "%s/%d", o->dir, n);
		if (mkdir(path[n], 0755))
			fail(path[n]);
		strcat(path[n], "/libcuda.so.1");
		write_file(path[n], b, size);
	}
	free(b);
	for (unsigned long n = 0; n < o->count; n++) {
		void *library = dlopen(path[n % 64], RTLD_NOW | RTLD_LOCAL);

		if (!library)
			fail(path[n % 64]);
		dlclose(library);
	}
}

static void *wait_forever(void *name)
{
	prctl(PR_SET_NAME, name, 0, 0, 0);
	for (;;)
		pause();
	return NULL;
}

/* `count` threads, or as many as there may be. */
void attack_threads(const struct order *o)
{
	static char name[] = "\x1b]0;\a<b>\xff";
	pthread_attr_t small;
	pthread_t thread;
	unsigned long n;

	if (!dlopen(o->driver, RTLD_NOW))
		fail(o->driver);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16384);
	for (n = 0; n < o->count; n++)
		if (pthread_create(&thread, &small, wait_forever, name))
			break;
	printf("%lu threads\n", n);
}

static void reap(unsigned long at_most)
{
	static unsigned long running;

	running++;
	while (running > at_most && waitpid(-1, NULL, 0) > 0)
		running--;
	while (at_most && waitpid(-1, NULL, WNOHANG) > 0)
		running--;
}

/* `count` processes that have the library mapped, and end at once. */
void attack_forks(const struct order *o)
{
	if (!dlopen(o->driver, RTLD_NOW))
		fail(o->driver);
	for (unsigned long n = 0; n < o->count; n++) {
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		if (child < 0 && errno != EAGAIN)
			fail("fork");
		reap(32);
	}
	reap(0);
}

/* Starts one of the programs of main(), with one variable in its environment. */
static void run_with(char *program, char *variable)
{
	char *arguments[] = { "hostile", program, NULL };
	char *environment[] = { variable, NULL };

	if (fork() == 0) {
		execve("/proc/self/exe", arguments, environment);
		_exit(1);
	}
}

/* `count` programs that end at once. */
void attack_execs(const struct order *o)
{
	char path[4096];

	/* Another directory each time: it is searched for libraries. */
	for (unsigned long n = 0; n < o->count; n++) {
		snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/%lu:/nowhere/%lu", o->dir, n, n);
		run_with("nothing", path);
		reap(32);
	}
	reap(0);
}

/* `count` programs that name a directory of 20,000 files, each as often as there is room. */
void attack_searches(const struct order *o)
{
	enum { FILES = 20000, ROOM = 60000 };
	char many[4200], path[4300], *list = malloc(ROOM + sizeof(path));

	snprintf(many, sizeof(many), "%s/many", o->dir);
	if (!list || mkdir(many, 0755))
		fail(many);
	for (int n = 0; n < FILES; n++) {
		snprintf(path, sizeof(path), "%s/%d", many, n);
		write_file(path, "", 0);
	}
	for (unsigned long n = 0; n < o->count; n++) {
		int at = sprintf(list, "LD_LIBRARY_PATH=/nowhere/%lu", n);

		while (at < ROOM)
			at += sprintf(list + at, ":%s", many);
		run_with("linger", list);
		reap(32);
		usleep(10000);
	}
	reap(0);
	free(list);
}

/* A file system whose server never answers: each program looks there for its libraries, and so does
 * who traces it. */
void attack_hangs(const struct order *o)
{
	char path[4300], options[100];
	int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	snprintf(path, sizeof(path), "%s/hangs", o->dir);
	if (device < 0 || mkdir(path, 0755))
		fail("make the file system");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (mount("hangs", path, "fuse", 0, options))
		fail("mount the file system");
	for (unsigned long n = 0; n < o->count; n++) {
		snprintf(path, sizeof(path), "LD_LIBRARY_PATH=%s/hangs/%lu", o->dir, n);
		run_with("nothing", path);
		usleep(10000);
	}
	sleep(5);
	close(device); /* all that wait get an error */
	reap(0);
	snprintf(path, sizeof(path), "%s/hangs", o->dir);
	if (umount2(path, MNT_DETACH))
		fail("unmount the file system");
}

/* Names with what drives terminals and pages; `count` KiB of arguments and of environment. */
void attack_names(const struct order *o)
{
	static const char bad[] =
		"\x1b[2J\x1b]0;owned\a<script>alert(1)</script>\n\xff\xfe\xe2\x80\xae";
	size_t size = 100 << 10, have = o->count / 100 + 1;
	char name[64], dir[4300], path[4400];
	char **arguments, **environment;
	unsigned char *b;
	int (*alloc)(unsigned long *, size_t);
	unsigned long pointer;
	void *library;

	if (getenv("HOSTILE_AGAIN")) { /* it has its new names */
		prctl(PR_SET_NAME, "\x1b[31m<b>\n\xff\"", 0, 0, 0);
		library = dlopen(o->driver, RTLD_NOW);
		if (!library)
			fail(o->driver);
		int (*init)(unsigned int) = (int (*)(unsigned int))dlsym(library, "cuInit");
		int (*retain)(unsigned long *, int) =
			(int (*)(unsigned long *, int))dlsym(library, "cuDevicePrimaryCtxRetain");
		int (*set)(unsigned long) =
			(int (*)(unsigned long))dlsym(library, "cuCtxSetCurrent");
		alloc = (int (*)(unsigned long *, size_t))dlsym(library, "cuMemAlloc_v2");
		if (!init || !retain || !set || !alloc || init(0) || retain(&pointer, 0) ||
		    set(pointer))
			fail("start the driver");
		sleep(1); /* until it is attached to */
		if (alloc(&pointer, 4096))
			fail("allocate");
		return;
	}
	snprintf(dir, sizeof(dir), "%s/%s", o->dir, "a b\x1b[31m<i>\n\xff");
	if (mkdir(dir, 0755))
		fail("mkdir");
	make_path(path, sizeof(path), dir, "libcuda.so.1");
	b = read_file(o->driver, &size);
	write_file(path, b, size);
	free(b);
	size = 100 << 10;
	arguments = calloc(have + 6, sizeof(char *));
	environment = calloc(have + 3, sizeof(char *));
	if (!arguments || !environment)
		fail("names");
	char *long_text = malloc(size + 1);
	if (!long_text)
		fail("names");
	for (size_t n = 0; n < size; n++)
		long_text[n] = bad[n % (sizeof(bad) - 1)];
	long_text[size] = 0;
	snprintf(name, sizeof(name), "%lu", o->count);
	arguments[0] = "hostile";
	arguments[1] = "names";
	arguments[2] = path;
	arguments[3] = (char *)o->dir;
	arguments[4] = name;
	environment[0] = "HOSTILE_AGAIN=1";
	for (size_t n = 0; n < have; n++) {
		arguments[5 + n] = long_text;
		environment[1 + n] = long_text;
	}
	/* A quarter of the stack's limit is the most, and not above 6 MiB. */
	if (setrlimit(RLIMIT_STACK, &(struct rlimit){ 64 << 20, 64 << 20 }))
		fail("limit");
	execve("/proc/self/exe", arguments, environment);
	fail("exec");
}
