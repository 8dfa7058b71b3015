// SPDX-License-Identifier: Apache-2.0

// A library whose frame has WORDS words, each the address of some code: who reads the return
// address by the rules of another build finds one that looks right.
extern "C" long middle(long (*call)(), void *code)
{
	void *volatile room[WORDS];

	for (int i = 0; i < WORDS; i++)
		room[i] = code;
	return call() + (room[0] == code);
}
