// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/compiled"
)

// gadgetModule gives the eBPF headers that gadgets include as <gadget/...>.
const gadgetModule = "github.com/inspektor-gadget/inspektor-gadget"

// architecture is one CPU that images carry a program for.
type architecture struct {
	name      string // as Go and OCI call it, and IG's header directory
	target    string // suffix of __TARGET_ARCH_ in libbpf's bpf_tracing.h
	multiarch string // Debian's directory of <asm/...>
}

func architectures() []architecture {
	return []architecture{
		{name: "amd64", target: "x86", multiarch: "x86_64-linux-gnu"},
		{name: "arm64", target: "arm64", multiarch: "aarch64-linux-gnu"},
	}
}

// native is the value of -architectures for the architecture of this machine alone.
const native = "native"

// chooseArchitectures divides the architectures into those that images are made for and
// those that programs are only checked for, by the value of -architectures.
func chooseArchitectures(choice string) (packed, checked []architecture, err error) {
	switch choice {
	case "all":
		return architectures(), nil, nil
	case native:
		for _, arch := range architectures() {
			if arch.name == runtime.GOARCH {
				packed = append(packed, arch)
			} else {
				checked = append(checked, arch)
			}
		}
		if len(packed) == 0 {
			return nil, nil, fmt.Errorf("-architectures native: no programs are compiled for %s", runtime.GOARCH)
		}
		return packed, checked, nil
	}
	return nil, nil, fmt.Errorf("-architectures %q: either all or native", choice)
}

func namesOf(all []architecture) []string {
	var names []string
	for _, arch := range all {
		names = append(names, arch.name)
	}
	return names
}

// compiler turns C into stripped eBPF objects.
type compiler struct {
	clang, strip string
	headers      string // include directory of Inspektor Gadget
	objects      string // where objects are written
	// packed are the architectures to compile for; the source is checked for the others,
	// without code being generated.
	packed, checked []architecture
}

func newCompiler(opts options) (*compiler, error) {
	clang, err := findTool(opts.clang, "clang")
	if err != nil {
		return nil, err
	}
	strip, err := findTool(opts.strip, "llvm-strip")
	if err != nil {
		return nil, err
	}
	packed, checked, err := chooseArchitectures(opts.architectures)
	if err != nil {
		return nil, err
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", gadgetModule).Output()
	if err != nil {
		return nil, fmt.Errorf("find the headers of %s with go list: %w", gadgetModule, err)
	}
	return &compiler{
		clang:   clang,
		strip:   strip,
		headers: filepath.Join(strings.TrimSpace(string(module)), "include"),
		objects: opts.objects,
		packed:  packed,
		checked: checked,
	}, nil
}

// findTool prefers an explicit choice, then versioned names from new to old:
// distributions often have an old `clang` beside a new `clang-19`. Before version 15 the
// compiler does not emit all BTF declaration and type tags that we need.
func findTool(choice, name string) (string, error) {
	if choice != "" {
		return exec.LookPath(choice)
	}
	const newest, oldest = 22, 15
	for version := newest; version >= oldest; version-- {
		if path, err := exec.LookPath(fmt.Sprintf("%s-%d", name, version)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no %s found: run scripts/setup.sh, or install LLVM %d or newer", name, oldest)
	}
	return path, nil
}

// compile returns the path of the object per architecture name. A program that
// does not compile for every architecture is an error: an image without one of
// them would fail on another machine instead of here. For architectures that are only
// checked, an object of an earlier build is removed.
func (c *compiler) compile(g gadget) (map[string]string, error) {
	objects := map[string]string{}
	for _, arch := range c.checked {
		if _, err := runTool(c.clang, c.arguments(g, arch, "-fsyntax-only")); err != nil {
			return nil, fmt.Errorf("check for %s: %w", arch.name, err)
		}
		if err := compiled.Remove(c.object(g, arch)); err != nil {
			return nil, fmt.Errorf("remove an old object: %w", err)
		}
	}
	for _, arch := range c.packed {
		object := c.object(g, arch)
		if err := os.MkdirAll(filepath.Dir(object), 0o755); err != nil {
			return nil, fmt.Errorf("make object directory: %w", err)
		}
		if err := compiled.Remove(object); err != nil {
			return nil, fmt.Errorf("remove an old object: %w", err)
		}
		warned, err := runTool(c.clang, c.arguments(g, arch, "-c", "-o", object))
		if err != nil {
			return nil, fmt.Errorf("compile for %s: %w", arch.name, err)
		}
		// Drops DWARF and keeps BTF, which the loader reads.
		if _, err := runTool(c.strip, []string{"-g", object}); err != nil {
			return nil, fmt.Errorf("strip for %s: %w", arch.name, err)
		}
		// Tests treat warnings as errors: they compile such a program themselves.
		if !warned {
			if err := c.from(g, arch).Identify(object); err != nil {
				return nil, fmt.Errorf("identify the source for %s: %w", arch.name, err)
			}
		}
		objects[arch.name] = object
	}
	return objects, nil
}

// compileWASM returns the path of the gadget's WASM module, which is the same for
// every architecture; "" when it has none. Built as by ig's own `ig image
// build` (a reactor: -buildmode=c-shared), and bytes that do not depend on where
// it was built.
func (c *compiler) compileWASM(g gadget) (string, error) {
	if g.WASM == nil {
		return "", nil
	}
	file, err := filepath.Abs(filepath.Join(c.objects, g.Name, "program.wasm"))
	if err != nil {
		return "", err
	}
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared",
		"-ldflags", "-s -w -buildid=", "-o", file, ".")
	command.Dir = filepath.Join(g.root, g.WASM.Dir)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=wasip1", "GOARCH=wasm")
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("compile %s for wasip1: go build, see above: %w", g.WASM.Dir, err)
	}
	return file, nil
}

func (c *compiler) object(g gadget, arch architecture) string {
	return filepath.Join(c.objects, g.Name, arch.name+".bpf.o")
}

// from is the gadget's source and how it is compiled.
func (c *compiler) from(g gadget, arch architecture) compiled.Source {
	return compiled.Source{
		Compiler: c.clang,
		Path:     g.source(),
		Include: []string{
			filepath.Join(g.root, "bpf"),
			g.path(),
			c.headers,
			filepath.Join(c.headers, "gadget", arch.name), // vmlinux.h
			filepath.Join("/usr/include", arch.multiarch),
		},
		Flags: append([]string{"-D__TARGET_ARCH_" + arch.target}, g.CFlags...),
	}
}

// arguments are those of clang; output has the flags that say what is made of the source.
func (c *compiler) arguments(g gadget, arch architecture, output ...string) []string {
	from := c.from(g, arch)
	arguments := []string{"-target", "bpf", "-O2", "-g", "-Wall"}
	for _, dir := range from.Include {
		arguments = append(arguments, "-I", dir)
	}
	// BTF keeps the file name of every line; keep the builder's paths out of it.
	if dir, err := os.Getwd(); err == nil {
		arguments = append(arguments, "-ffile-prefix-map="+dir+"=.")
	}
	arguments = append(arguments, "-ffile-prefix-map="+c.headers+"=inspektor-gadget/include")
	arguments = append(arguments, from.Flags...)
	return append(append(arguments, output...), g.source())
}

// runTool passes the tool's warnings on to the user, and its errors too. It reports whether
// there were any.
func runTool(tool string, arguments []string) (warned bool, err error) {
	command := exec.Command(tool, arguments...)
	text, err := command.CombinedOutput()
	if _, writeErr := os.Stderr.Write(text); err == nil {
		err = writeErr
	}
	if err != nil {
		return true, fmt.Errorf("%s, see above: %w", filepath.Base(tool), err)
	}
	return len(text) > 0, nil
}
