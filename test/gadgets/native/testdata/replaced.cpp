// SPDX-License-Identifier: Apache-2.0

// Calls the driver through a library that is replaced by another build of it again and again, and
// says what each stack was, by backtrace(3).
//
// replaced LIBCUDA HOW ROUNDS LIBRARY FIRST SECOND
//
// HOW: renamed (a new file at the same path), rewritten (the same file), or loaded: replaced by a
// new file after it was loaded and before it is called.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#define MOST 64

static int (*cu_alloc)(uint64_t *, size_t);
static std::map<std::vector<void *>, long> paths;

static __attribute__((noinline)) long leaf()
{
	void *found[MOST];
	uint64_t pointer;
	int n = backtrace(found, MOST);

	paths[std::vector<void *>(found + 1, found + n)]++;
	if (cu_alloc(&pointer, 4096))
		abort();
	return pointer;
}

static void write_file(const std::string &to, const std::string &from, int flags)
{
	char buffer[65536];
	int in = open(from.c_str(), O_RDONLY), out = open(to.c_str(), O_WRONLY | O_CREAT | flags, 0755);
	ssize_t n;

	if (in < 0 || out < 0)
		abort();
	while ((n = read(in, buffer, sizeof(buffer))) > 0)
		if (write(out, buffer, n) != n)
			abort();
	close(in);
	close(out);
}

static void place(const std::string &library, const std::string &from, bool in_place)
{
	if (in_place) {
		write_file(library, from, O_TRUNC);
		return;
	}
	write_file(library + ".new", from, O_TRUNC);
	if (rename((library + ".new").c_str(), library.c_str()))
		abort();
}

int main(int argc, char **argv)
{
	void *cuda = dlopen(argv[1], RTLD_NOW), *context;
	int (*cu_init)(unsigned) = (int (*)(unsigned))dlsym(cuda, "cuInit");
	int (*cu_context)(void **, unsigned, int) = (int (*)(void **, unsigned, int))dlsym(cuda, "cuCtxCreate_v2");

	cu_alloc = (int (*)(uint64_t *, size_t))dlsym(cuda, "cuMemAlloc_v2");
	if (argc != 7 || cu_init(0) || cu_context(&context, 0, 0))
		return 1;
	std::string how = argv[2], library = argv[4];
	puts("ready");
	fflush(stdout);
	getchar();
	for (int round = 0; round < atoi(argv[3]); round++) {
		place(library, argv[5 + round % 2], how == "rewritten");
		void *loaded = dlopen(library.c_str(), RTLD_NOW);
		if (!loaded)
			abort();
		if (how == "loaded")
			place(library, argv[5 + (round + 1) % 2], false);
		long (*middle)(long (*)(), void *) = (long (*)(long (*)(), void *))dlsym(loaded, "middle");
		for (int i = 0; i < 20; i++) {
			middle(leaf, (char *)leaf + 8);
			usleep(5000); // rules are loaded meanwhile
		}
		dlclose(loaded);
	}
	for (const auto &path : paths) {
		printf("%ld", path.second);
		for (void *address : path.first)
			printf(" %p", address);
		puts("");
	}
	puts("end");
	fflush(stdout);
	getchar();
}
