// SPDX-License-Identifier: Apache-2.0
/* A program like python3 itself, linked to whichever libpython it is given. */
int Py_BytesMain(int argc, char **argv); /* 3.8+ */

int main(int argc, char **argv)
{
	return Py_BytesMain(argc, argv);
}
