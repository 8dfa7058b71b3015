// SPDX-License-Identifier: Apache-2.0

// A server in C++, for a build without frame pointers. Each line on stdin is one request.
//
// server LIBCUDA
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline))

static int (*cu_init)(unsigned);
static int (*cu_context)(void **, unsigned, int);
static int (*cu_current)(void *);
static int (*cu_alloc)(uint64_t *, size_t);
static void *context;

namespace serving {

struct Buffer {
	uint64_t pointer;

	NOINLINE explicit Buffer(size_t bytes)
	{
		if (cu_alloc(&pointer, bytes))
			abort();
	}
};

struct KVCache {
	std::vector<Buffer> blocks;

	// What follows each call keeps it from being a jump, which has no frame.
	NOINLINE size_t grow(size_t bytes)
	{
		blocks.emplace_back(bytes);
		return blocks.size();
	}
};

template <typename Model> struct Engine {
	KVCache cache;
	Model scratch;

	NOINLINE size_t prefill(size_t tokens) { return cache.grow(tokens * 4096) + tokens; }
	NOINLINE size_t decode(size_t tokens) { return scratch.grow(tokens * 1024) + 1; }
	NOINLINE size_t step(const std::function<size_t(Engine &)> &work) { return work(*this) + 1; }
};

struct Transformer {
	std::vector<Buffer> buffers;

	NOINLINE size_t grow(size_t bytes)
	{
		buffers.emplace_back(bytes);
		return buffers.size();
	}
};

struct Server {
	Engine<Transformer> engine;
	size_t served = 0;

	NOINLINE void handle()
	{
		served += engine.step([](Engine<Transformer> &e) { return e.prefill(512) + 1; });
		served += engine.step([](Engine<Transformer> &e) { return e.decode(1024) + 1; });
	}

	NOINLINE void prefetch()
	{
		std::thread worker([this] {
			if (cu_current(context))
				abort();
			served += engine.cache.grow(1 << 20);
		});
		worker.join();
	}

	NOINLINE void run()
	{
		for (std::string line; std::getline(std::cin, line);) {
			handle();
			prefetch();
			std::cout << "served" << std::endl;
		}
	}
};

} // namespace serving

template <typename Function> static void find(void *library, const char *name, Function *function)
{
	*function = reinterpret_cast<Function>(dlsym(library, name));
	if (!*function)
		abort();
}

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : nullptr;

	if (!library)
		return 1;
	find(library, "cuInit", &cu_init);
	find(library, "cuCtxCreate_v2", &cu_context);
	find(library, "cuCtxSetCurrent", &cu_current);
	find(library, "cuMemAlloc_v2", &cu_alloc);
	if (cu_init(0) || cu_context(&context, 0, 0))
		return 1;
	std::cout << "ready" << std::endl;
	serving::Server server;
	server.run();
	return server.served == 0;
}
