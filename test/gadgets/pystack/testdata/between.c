/* SPDX-License-Identifier: Apache-2.0 */
/* between: functions of C between two parts of Python. */
#include <unistd.h>

#define CROSSING(name) \
	int name(int (*call)(int), int value) \
	{ \
		volatile int result = call(value); \
		return result; \
	}

CROSSING(crossing_a)
CROSSING(crossing_bb)

int doze(void)
{
	volatile unsigned int left = sleep(1000);

	return left;
}
