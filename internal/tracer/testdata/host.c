// SPDX-License-Identifier: Apache-2.0

/* A process that maps a library and calls it, by commands on its input:
 *   open PATH          dlopen; answers with CLOCK_MONOTONIC in ns right after
 *   call SYMBOL COUNT  answers with the nanoseconds per call
 *   ask SYMBOL         answers with what the function returns
 *   close              dlclose
 *   fork               goes on in a child; answers with its pid
 *   exec               another thread than the first runs this program again; answers with the pid
 *   threads            goes on in another thread, while the first one ends; answers with the pid
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *lib;
static int commands(void);

static void *run_again(void *arg)
{
	(void)arg;
	execl("/proc/self/exe", "host", "again", NULL);
	return NULL;
}

static void *run_on(void *arg)
{
	(void)arg;
	printf("%d\n", getpid());
	exit(commands());
}

int main(int argc, char **argv)
{
	(void)argv;
	setlinebuf(stdout);
	if (argc > 1)
		printf("%d\n", getpid());
	return commands();
}

static int commands(void)
{
	char line[8192];
	pthread_t thread;

	while (fgets(line, sizeof(line), stdin)) {
		char *arg = strchr(line, ' ');
		line[strcspn(line, "\n")] = 0;
		if (arg)
			*arg++ = 0;
		if (!strcmp(line, "open")) {
			lib = dlopen(arg, RTLD_NOW | RTLD_LOCAL);
			printf("%lld\n", lib ? now() : -1);
		} else if (!strcmp(line, "close")) {
			dlclose(lib);
			puts("0");
		} else if (!strcmp(line, "ask")) {
			int (*fn)(void) = (int (*)(void))dlsym(lib, arg);
			printf("%d\n", fn ? fn() : -1);
		} else if (!strcmp(line, "call")) {
			char *count = strchr(arg, ' ');
			*count++ = 0;
			int (*fn)(void *, size_t) = (int (*)(void *, size_t))dlsym(lib, arg);
			long n = atol(count);
			void *out = NULL;
			long long t = now();
			for (long i = 0; fn && i < n; i++)
				fn(&out, 1);
			printf("%lld\n", fn ? (now() - t) / n : -1);
		} else if (!strcmp(line, "fork")) {
			pid_t pid = fork();
			if (pid) {
				wait(NULL);
				return 0;
			}
			printf("%d\n", getpid());
		} else if (!strcmp(line, "exec")) {
			pthread_create(&thread, NULL, run_again, NULL);
			pthread_join(thread, NULL);
		} else if (!strcmp(line, "threads")) {
			pthread_create(&thread, NULL, run_on, NULL);
			pthread_exit(NULL);
		}
	}
	return 0;
}
