/* SPDX-License-Identifier: Apache-2.0 */
/* A library with NCCL's names, in which all calls succeed and do nothing. */
#include <stddef.h>

int ncclSend(const void *buffer, size_t count, int type, int peer, void *comm, void *stream)
{
	return 0;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int reduction, void *comm,
		  void *stream)
{
	return 0;
}
