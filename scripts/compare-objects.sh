#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# compare-objects.sh BEFORE AFTER: whether two builds of the gadgets are the same code.
# Each is a directory with compiled objects, such as build/bpf, or a revision of git,
# whose gadgets are compiled for it. Prints a line for each object: "equal", or what
# differs. Exits 1 when anything differs, and 2 when it cannot compare.
#
# Sections are compared byte for byte: programs, relocations, constants, symbols. Not so
# those of BTF, which also has the names of source files and the numbers of lines: of these
# the types, which maps are made of, and the CO-RE relocations (llvm-objdump 19 or newer).
set -euo pipefail
shopt -s inherit_errexit

fail() {
	echo "compare-objects.sh: $*" >&2
	exit 2
}

usage() {
	[ $# -eq 0 ] || echo "compare-objects.sh: $*" >&2
	echo "usage: compare-objects.sh BEFORE AFTER (each a directory of objects, or a git revision)" >&2
	exit 2
}

# tool NAME: the newest, as cmd/gadget-images looks for its compiler.
tool() {
	local version
	for version in $(seq -f '-%.0f' 22 -1 15) ""; do
		command -v "$1$version" && return
	done
	fail "no $1 found: run scripts/setup.sh"
}

[ $# -eq 2 ] || usage
for side in "$@"; do
	[ -d "$side" ] || git rev-parse --verify --quiet "$side^{commit}" >/dev/null ||
		usage "$side is neither a directory nor a revision"
done
objcopy=$(tool llvm-objcopy)
objdump=$(tool llvm-objdump)
readelf=$(tool llvm-readelf)
work=$(mktemp -d)
cleanup() {
	local tree
	for tree in "$work"/*.tree; do
		[ ! -d "$tree" ] || git worktree remove --force "$tree"
	done
	rm -rf "$work"
}
trap cleanup EXIT

# objects SIDE NAME: prints the directory of the objects; compiles those of a revision.
objects() {
	if [ -d "$1" ]; then
		echo "$1"
		return
	fi
	echo "==> compile the gadgets of $1" >&2
	git worktree add --quiet --detach "$work/$2.tree" "$1" >&2
	(cd "$work/$2.tree" && go run -buildvcs=false ./cmd/gadget-images \
		-objects "$work/$2" -o "$work/$2.images") >&2 || fail "the gadgets of $1 do not compile"
	echo "$work/$2"
}

list() {
	(cd "$1" && find . -name '*.o' -type f | sed 's,^\./,,' | sort)
}

# sections OBJECT: its contents as text, the section's name before each line.
sections() {
	local count
	count=$("$readelf" -h "$1" | awk -F: '/Number of section headers/ { print $2 + 0 }')
	# shellcheck disable=SC2046 # an argument for each section
	"$readelf" $(seq -f '-x%.0f' 1 $((count - 1))) "$1" 2>/dev/null |
		awk '/^Hex dump of section / { name = substr($0, 22, length($0) - 23); next }
			NF { print name "\t" $0 }'
}

# types BTF: a line for each type of the section, sorted, with names in place of numbers:
# clang numbers declarations without a definition by where they lie in its memory.
types() {
	python3 - "$1" <<'PYTHON' | sort
import struct, sys

data = open(sys.argv[1], "rb").read()
header, start, size, strings = struct.unpack_from("<4xIIII", data)
at, end, strings = header + start, header + start + size, header + strings
PTR, ARRAY, STRUCT, UNION, ENUM, TYPEDEF, VOLATILE, CONST = 2, 3, 4, 5, 6, 8, 9, 10
RESTRICT, FUNC, PROTO, VAR, DATASEC, DECL_TAG, TYPE_TAG, ENUM64 = 11, 12, 13, 14, 15, 17, 18, 19
REFERENCES = {PTR, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, PROTO, VAR, DECL_TAG, TYPE_TAG}
INT = 1


def word():
    global at
    at += 4
    return struct.unpack_from("<I", data, at - 4)[0]


def name():
    begin = strings + word()
    return data[begin : data.index(0, begin)].decode()


def to():
    return (word(),)  # the number of a type


# Kinds and layouts of include/uapi/linux/btf.h, Documentation/bpf/btf.rst.
MEMBERS = {
    STRUCT: (name, to, word), UNION: (name, to, word), PROTO: (name, to),
    ENUM: (name, word), ENUM64: (name, word, word), DATASEC: (to, word, word),
}  # fmt: skip
ONCE = {INT: (word,), VAR: (word,), DECL_TAG: (word,), ARRAY: (to, to, word)}
all_types = [[0, 0, "void"]]
while at < end:
    title, info = name(), word()
    kind = info >> 24 & 31
    parts = [kind, info, title, to() if kind in REFERENCES else word()]
    for field in ONCE.get(kind, ()) + MEMBERS.get(kind, ()) * (info & 65535):
        parts.append(field())
    all_types.append(parts)


def describe(parts):
    return [refer(part[0]) if isinstance(part, tuple) else part for part in parts]


def refer(number):
    parts = all_types[number]
    return parts[:3] if parts[2] and parts[0] != TYPE_TAG else describe(parts)


for parts in all_types:
    print(describe(parts))
PYTHON
}

# parts OBJECT NAME: writes what is compared to files with that name.
parts() {
	"$objcopy" --dump-section .BTF="$2.btf" "$1" "$2.copy" || fail "cannot read $1"
	types "$2.btf" >"$2.types" || fail "cannot read the types of $1"
	"$objcopy" --remove-section .BTF --remove-section .BTF.ext "$1" "$2.o"
	"$objdump" -d -r --no-show-raw-insn "$1" | sed -n '/CO-RE/s/\[[0-9]*\] //p' >"$2.core"
}

# difference BEFORE AFTER: the parts that differ, by name; nothing when they are equal.
difference() {
	parts "$1" "$work/1"
	parts "$2" "$work/2"
	if ! cmp -s "$work/1.o" "$work/2.o"; then
		sections "$work/1.o" >"$work/1.sections"
		sections "$work/2.o" >"$work/2.sections"
		{ diff "$work/1.sections" "$work/2.sections" || true; } |
			sed -n 's/^[<>] \([^\t]*\)\t.*/section \1/p' | sort -u >"$work/names"
		[ -s "$work/names" ] || echo "headers of sections" >"$work/names"
		cat "$work/names"
	fi
	cmp -s "$work/1.types" "$work/2.types" || echo "types"
	cmp -s "$work/1.core" "$work/2.core" || echo "CO-RE relocations"
}

before=$(objects "$1" before)
after=$(objects "$2" after)
all=$({ list "$before" && list "$after"; } | sort -u)
[ -n "$all" ] || fail "no objects in $1 and $2"
status=0
while read -r object; do
	if [ ! -f "$before/$object" ]; then
		verdict="only in $2"
	elif [ ! -f "$after/$object" ]; then
		verdict="only in $1"
	else
		verdict=$(difference "$before/$object" "$after/$object")
		verdict=${verdict//$'\n'/, }
	fi
	echo "$object: ${verdict:-equal}"
	[ -z "$verdict" ] || status=1
done <<<"$all"
exit "$status"
