// SPDX-License-Identifier: Apache-2.0
//
// Uses NCCL's own code on two simulated devices, one step at a time. Prints the step that is done,
// and waits for a line. Between two lines nothing but that step allocates memory of the driver.
#include <stdio.h>
#include <stdlib.h>

typedef struct comm *ncclComm_t;
typedef struct {
	char internal[128];
} ncclUniqueId;
int ncclCommInitAll(ncclComm_t *, int, const int *);
int ncclGetUniqueId(ncclUniqueId *);
int ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
int ncclGroupStart(void), ncclGroupEnd(void);
int ncclAllReduce(const void *, void *, size_t, int, int, ncclComm_t, void *);
int ncclMemAlloc(void **, size_t), ncclMemFree(void *), ncclCommDestroy(ncclComm_t);
int cudaSetDevice(int), cudaMalloc(void **, size_t), cudaDeviceSynchronize(void);

#define CHECK(call) \
	do { \
		int result = (call); \
		if (result) { \
			fprintf(stderr, "%s: %d\n", #call, result); \
			exit(1); \
		} \
	} while (0)

static void done(const char *step)
{
	char line[16];

	printf("%s\n", step);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(2);
}

static void reduce(ncclComm_t *communicators, int count, void **buffers)
{
	CHECK(ncclGroupStart());
	for (int i = 0; i < count; i++)
		CHECK(ncclAllReduce(buffers[i], buffers[i], 1000, 7, 0, communicators[i], NULL));
	CHECK(ncclGroupEnd());
	for (int i = 0; i < count; i++) {
		CHECK(cudaSetDevice(i));
		CHECK(cudaDeviceSynchronize());
	}
}

__attribute__((noinline)) static void make_pair(ncclComm_t *pair)
{
	int devices[2] = { 0, 1 };

	CHECK(ncclCommInitAll(pair, 2, devices));
}

__attribute__((noinline)) static void make_single(ncclComm_t *single)
{
	ncclUniqueId id;

	CHECK(ncclGetUniqueId(&id));
	CHECK(cudaSetDevice(0));
	CHECK(ncclCommInitRank(single, 1, id, 0));
}

int main(void)
{
	ncclComm_t pair[2], single;
	void *buffers[2], *own;

	for (int i = 0; i < 2; i++) {
		CHECK(cudaSetDevice(i));
		CHECK(cudaMalloc(&buffers[i], 4 << 20));
	}
	done("ready");
	make_pair(pair);
	done("pair");
	make_single(&single);
	done("single");
	reduce(pair, 2, buffers);
	done("reduce pair");
	reduce(&single, 1, buffers);
	done("reduce single");
	CHECK(ncclMemAlloc(&own, 3 << 20));
	done("ncclMemAlloc");
	for (int i = 0; i < 2; i++)
		CHECK(ncclCommDestroy(pair[i]));
	done("destroy pair");
	CHECK(ncclMemFree(own));
	done("ncclMemFree");
	CHECK(ncclCommDestroy(single));
	done("destroy single");
	return 0;
}
