/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_PYTHON_RUNTIME_OFFSETS_H
#define GPU_GADGETS_PYTHON_RUNTIME_OFFSETS_H

/*
 * offsets: where the fields of CPython's structs are, by version.
 *
 * 3.7 – 3.12: bytes, x86-64 and arm64 alike (both LP64), from the debug information of
 * 3.7.16, 3.8.18, 3.9.18, 3.10.13, 3.11.7 and 3.12.1; a release branch does not change
 * them. 3.13 and later publish their own in _Py_DebugOffsets, at the start of _PyRuntime:
 * for these the columns have the position of each offset in that table
 * (Include/internal/pycore_runtime.h in 3.13, pycore_debug_offsets.h in 3.14 and 3.15).
 *
 * X(name, largest accepted, 3.7, 3.8, 3.9, 3.10, 3.11, 3.12 | 3.13, 3.14, 3.15)
 */
#define PY_NONE 0xffff

#define PYTHON_OFFSETS(X)                                                            \
	/* _PyRuntimeState, PyInterpreterState */                                     \
	X(PY_RUNTIME_INTERPRETERS, 65528, 24, 32, 32, 32, 40, 40, 40, 40, 40)         \
	X(PY_INTERPRETER_NEXT, 65528, 0, 0, 0, 0, 0, 0, 64, 64, 64)                   \
	X(PY_INTERPRETER_THREADS, 65528, 8, 8, 8, 8, 16, 72, 72, 72, 72)              \
	/* PyThreadState. 3.11 and 3.12 point to a _PyCFrame, which has the frame */  \
	X(PY_THREAD_NEXT, 184, 8, 8, 8, 8, 8, 8, 168, 192, 192)                       \
	X(PY_THREAD_ID, 184, 176, 176, 176, 176, 152, 136, 192, 216, 240)             \
	X(PY_THREAD_NATIVE_ID, 184, PY_NONE, PY_NONE, PY_NONE, PY_NONE, 160, 144,     \
	  200, 224, 248)                                                              \
	X(PY_THREAD_FRAME, 184, 24, 24, 24, 24, 56, 56, 184, 208, 208)                \
	X(PY_CFRAME_FRAME, 64, PY_NONE, PY_NONE, PY_NONE, PY_NONE, 8, 0, PY_NONE,     \
	  PY_NONE, PY_NONE)                                                           \
	/* PyFrameObject; _PyInterpreterFrame from 3.11. INSTR: f_lasti below 3.11 */ \
	X(PY_FRAME_CODE, 112, 32, 32, 32, 32, 32, 0, 240, 264, 328)                   \
	X(PY_FRAME_PREVIOUS, 112, 24, 24, 24, 24, 48, 8, 232, 256, 320)               \
	X(PY_FRAME_INSTR, 112, 104, 104, 104, 96, 56, 56, 248, 272, 336)              \
	X(PY_FRAME_OWNER, 112, PY_NONE, PY_NONE, PY_NONE, PY_NONE, 69, 70, 264, 288,  \
	  352)                                                                        \
	X(PY_FRAME_LINE, 112, 108, 108, 108, 100, PY_NONE, PY_NONE, PY_NONE, PY_NONE, \
	  PY_NONE)                                                                    \
	X(PY_FRAME_TRACE, 112, 80, 80, 80, 72, PY_NONE, PY_NONE, PY_NONE, PY_NONE,    \
	  PY_NONE)                                                                    \
	X(PY_FRAME_LOCALS, 384, 360, 360, 360, 352, PY_NONE, PY_NONE, PY_NONE,        \
	  PY_NONE, PY_NONE)                                                           \
	/* PyCodeObject. INSTR: co_code_adaptive; VERSION: derived from 3.13 on */    \
	X(PY_CODE_ARGCOUNT, 152, 16, 16, 16, 16, PY_NONE, PY_NONE, PY_NONE, PY_NONE,  \
	  PY_NONE)                                                                    \
	X(PY_CODE_NLOCALS, 152, 24, 28, 28, 28, PY_NONE, PY_NONE, PY_NONE, PY_NONE,   \
	  PY_NONE)                                                                    \
	X(PY_CODE_VARNAMES, 152, 64, 72, 72, 72, PY_NONE, PY_NONE, PY_NONE, PY_NONE,  \
	  PY_NONE)                                                                    \
	X(PY_CODE_CELL2ARG, 152, 88, 96, 96, 96, PY_NONE, PY_NONE, PY_NONE, PY_NONE,  \
	  PY_NONE)                                                                    \
	X(PY_CODE_FIRSTLINE, 128, 36, 40, 40, 40, 72, 68, 312, 352, 416)              \
	X(PY_CODE_VERSION, 152, PY_NONE, PY_NONE, PY_NONE, PY_NONE, PY_NONE, 92,      \
	  PY_NONE, PY_NONE, PY_NONE)                                                  \
	X(PY_CODE_FILENAME, 152, 96, 104, 104, 104, 112, 112, 280, 320, 384)          \
	X(PY_CODE_NAME, 152, 104, 112, 112, 112, 120, 120, 288, 328, 392)             \
	X(PY_CODE_QUALNAME, 152, PY_NONE, PY_NONE, PY_NONE, PY_NONE, 128, 128, 296,   \
	  336, 400)                                                                   \
	X(PY_CODE_LINETABLE, 152, 112, 120, 120, 120, 136, 136, 304, 344, 408)        \
	X(PY_CODE_INSTR, 4096, PY_NONE, PY_NONE, PY_NONE, PY_NONE, 184, 192, 344, 384, \
	  448)                                                                        \
	/* PyUnicodeObject: ASCII and COMPACT are where the characters begin */       \
	X(PY_STRING_LENGTH, 64, 16, 16, 16, 16, 16, 16, 552, 632, 728)                \
	X(PY_STRING_STATE, 64, 32, 32, 32, 32, 32, 32, 544, 624, 720)                 \
	X(PY_STRING_ASCII, 64, 48, 48, 48, 48, 48, 40, 560, 640, 736)                 \
	X(PY_STRING_COMPACT, 96, 72, 72, 72, 72, 72, 56, PY_NONE, PY_NONE, PY_NONE)   \
	/* PyBytesObject */                                                           \
	X(PY_BYTES_SIZE, 64, 16, 16, 16, 16, 16, 16, 520, 600, 696)                   \
	X(PY_BYTES_DATA, 64, 32, 32, 32, 32, 32, 32, 528, 608, 704)

enum python_offset {
#define X(name, ...) name,
	PYTHON_OFFSETS(X)
#undef X
	PY_OFFSET_COUNT,
};

/* Objects that are read below 3.11 only. Their fields moved only once. */
#define PY_FRAME_GLOBALS 48
#define PY_OBJECT_TYPE 8
#define PY_TYPE_NAME 24
#define PY_TYPE_DICT 264
#define PY_TYPE_MRO 344
#define PY_DICT_VERSION 24 /* ma_version_tag */
#define PY_DICT_KEYS 32
#define PY_DICT_SIZE 8 /* of PyDictKeysObject */
#define PY_STRING_HASH 24
#define PY_PROPERTY_GET 16
#define PY_FUNCTION_CODE 16
#define PY_FUNCTION_CODE_310 48
#define PY_FUNCTION_QUALNAME 104
#define PY_FUNCTION_QUALNAME_310 40
#define PY_CODE_NESTED 0x10 /* CO_NESTED */
#define PY_TUPLE_SIZE 16
#define PY_TUPLE_ITEMS 24
#define PY_CELL_CONTENTS 16
/* 3.11 only. */
#define PY_FRAME_FUNCTION 0
#define PY_FUNCTION_VERSION 128

/* State bits of a str (PyASCIIObject.state; 3.14t moved them, refused above). */
#define PY_STRING_KIND(state) ((state >> 2) & 7)
#define PY_STRING_IS_COMPACT 32
#define PY_STRING_IS_ASCII 64

#define PY_MINOR_FIRST 7
#define PY_MINOR_TABLE 12 /* the last whose offsets are constants */
#define PY_MINOR_LAST 15
/* The tables are padded so that the verifier accepts a masked index. */
#define PY_ROW_MASK 15
#define PY_OFFSET_MASK 31
/* Bytes of _Py_DebugOffsets up to its version and free_threaded words. */
#define PY_DEBUG_COOKIE 0x7970677562656478ULL /* "xdebugpy" */
#define PY_DEBUG_VERSION 8
#define PY_DEBUG_FREE_THREADED 16

_Static_assert(PY_OFFSET_COUNT <= PY_OFFSET_MASK + 1, "padded");

/* The offsets of one process. */
struct python_offsets {
	__u16 at[PY_OFFSET_MASK + 1];
	__u8 minor;	    /* of 3.x; 0: unknown */
	__u8 free_threaded;
	__u16 frame_bytes;  /* how much of a frame is read */
	__u16 string_bytes; /* how much of a string's head is read */
	__u16 thread_bytes; /* how much of PyThreadState is used */
};

/* By minor - 7: bytes for 3.7 – 3.12, positions in _Py_DebugOffsets for later versions. */
static const __u16 python_known_offsets[PY_ROW_MASK + 1][PY_OFFSET_MASK + 1] = {
#define X(name, max, a, b, c, d, e, f, g, h, i) [0][name] = a, [1][name] = b,        \
	[2][name] = c, [3][name] = d, [4][name] = e, [5][name] = f, [6][name] = g,    \
	[7][name] = h, [8][name] = i,
	PYTHON_OFFSETS(X)
#undef X
};

static const __u16 python_largest_offset[PY_OFFSET_MASK + 1] = {
#define X(name, max, ...) [name] = max,
	PYTHON_OFFSETS(X)
#undef X
};

#endif
