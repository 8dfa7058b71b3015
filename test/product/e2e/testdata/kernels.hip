/* SPDX-License-Identifier: Apache-2.0 */

/* Kernels as a compiler of HIP makes them: their handles are variables, registered before main().
 * Launches each once per line of its standard input. */
#include <stdio.h>

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
	{
	}
};
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *);
extern "C" int __hipPushCallConfiguration(dim3, dim3, unsigned long = 0, void * = 0);
extern "C" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, void **);

#define KERNEL __attribute__((global)) void

namespace ns
{
template <class T> KERNEL gemm(T *)
{
}
}
namespace
{
KERNEL local(int)
{
}
}
extern "C" KERNEL plain(int)
{
}

int main()
{
	puts("ready");
	fflush(stdout);
	for (char line[16]; fgets(line, sizeof(line), stdin);) {
		ns::gemm<<<2, 64>>>((float *)0);
		local<<<3, 64>>>(1);
		plain<<<4, 64>>>(1);
		puts("ok 0");
		fflush(stdout);
	}
}
