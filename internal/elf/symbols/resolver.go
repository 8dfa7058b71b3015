// SPDX-License-Identifier: Apache-2.0

package symbols

import (
	"container/list"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/ianlancetaylor/demangle"

	"github.com/gpu-gadgets/gpu-gadgets/internal/elf/vdso"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/procmaps"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/recent"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

// Mappings are the facts about processes that the resolver needs; *procmaps.Cache
// has it.
type Mappings interface {
	// Find is the executable mapping that covers an address.
	Find(pid uint32, address uint64) (procmaps.Mapping, bool)
	// FindSince is Find, and whether that is final: the process was read after since, or has mapped nothing after it was read.
	FindSince(pid uint32, address uint64, since time.Time) (m procmaps.Mapping, ok, isFinal bool)
	// Around is the executable mappings of files nearest to an address, as of the last Find.
	Around(pid uint32, address uint64) []procmaps.Mapping
	// Open opens the file behind a mapping.
	Open(pid uint32, m procmaps.Mapping) (*procmaps.File, error)
	// Identities is procmaps.File.Identity of the files behind mappings, empty where that cannot be read.
	Identities(pid uint32, all []procmaps.Mapping) []string
	// OpenIn opens a regular file by its path as the process would.
	OpenIn(pid uint32, path string) (*procmaps.File, error)
	// Tenant is whom a process belongs to.
	Tenant(pid uint32) procmaps.Tenant
}

const (
	// tableBytes bounds all symbol tables together. PyTorch with CUDA and
	// its companions takes about 15 MiB.
	tableBytes = 32 << 20
	// openModules bounds (process, file) pairs: 64 processes of 500
	// libraries, twice.
	openModules = 32 << 10
	// namedAddresses bounds the names remembered per (module, address).
	namedAddresses = 32 << 10
	// namesBytes bounds these names, twice: as many are kept if they have 500 bytes each.
	namesBytes = 16 << 20
	// largeModule is from how many functions on the memory that reading
	// took is given back at once: 30 MiB of names would otherwise stay.
	largeModule = 50_000
	// maxMangled is how long a name may be to be demangled, and the power
	// of two that bounds the result: mangled names can unfold enormously.
	maxMangled      = 4 << 10
	maxDemangledPow = 12
)

// Resolver names native addresses. It reads each library's symbols once,
// whichever processes use it, in files of their own, and is safe for concurrent use.
type Resolver struct {
	mappings Mappings

	mu       sync.Mutex
	modules  *recent.Cache[moduleKey, mapped]
	files    files
	contents contents
	names    *recent.Cache[addressKey, string]
	tables   tables
	spent    throttle.Allowances[procmaps.Tenant]
	learned  throttle.Allowances[procmaps.Tenant]
	kernels  kernels
	now      func() time.Time
}

// moduleKey identifies what a process has mapped. The process takes part
// because a file's inode number is reused when it is replaced.
type moduleKey struct {
	process uint64
	start   uint64
	inode   uint64
}

// mapped is a module in a process, and until when it is not read again because its file system did not answer, or its tenant had
// cost too much.
type mapped struct {
	*loaded
	until time.Time
}

type addressKey struct {
	table   string // its id
	address uint64
}

// NewResolver returns a resolver that has read nothing yet.
func NewResolver(m Mappings) *Resolver {
	r := &Resolver{
		mappings: m,
		modules:  recent.New[moduleKey, mapped](openModules),
		files:    newFiles(),
		contents: newContents(),
		names:    recent.New[addressKey, string](namedAddresses),
		tables:   tables{byID: map[string]*list.Element{}, used: list.New(), bytesOf: map[procmaps.Tenant]int{}},
		spent:    throttle.Allowances[procmaps.Tenant]{Burst: readBurst, Share: readShare},
		learned:  throttle.Allowances[procmaps.Tenant]{Burst: learnBurst, Share: learnShare},
		now:      time.Now,
	}
	r.names.LimitBytes(namesBytes, func(name string) int { return len(name) })
	return r
}

// Frame names one address of a process. process identifies a process, pid is
// where it is read. leaf: the address is where the thread is; others are
// return addresses, which may already belong to the next function.
//
// The frame is always of stack.KindNative. Without a symbol its function is the
// address as a hexadecimal number, if there is a file the same in every process: as linked,
// or where in the file it is, if that could not be read; in the code of the kernel that a process has mapped (vdso(7)), from
// its begin on; else as it was at run time.
func (r *Resolver) Frame(process uint64, pid uint32, address uint64, leaf bool) stack.Frame {
	f, _ := r.frame(process, pid, address, leaf, time.Time{})
	return f
}

// frame is Frame of an address that was recorded before since; isFinal is false if it may have a name later.
func (r *Resolver) frame(process uint64, pid uint32, address uint64, leaf bool, since time.Time) (f stack.Frame, isFinal bool) {
	call := address
	if !leaf && call > 0 {
		call--
	}
	unnamed := stack.Frame{Kind: stack.KindNative, Function: fmt.Sprintf("%#x", address)}
	m, ok, isFinal := r.mappings.FindSince(pid, call, since)
	if !ok {
		return unnamed, isFinal
	}
	unnamed.File = m.Path
	if !m.IsFile() { // code of the kernel, or that was generated
		if m.Path == vdso.Path {
			unnamed.Function = r.kernels.named(m, call, address)
		}
		return unnamed, isFinal
	}
	unnamed.Function = fmt.Sprintf("%#x", m.FileOffset(call)+(address-call))

	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.load(process, pid, m, functions)
	if l.module == nil {
		return unnamed, isFinal && !l.isLater
	}
	linked, ok := l.module.Address(m.FileOffset(call))
	if !ok {
		return unnamed, isFinal
	}
	f = stack.Frame{Kind: stack.KindNative, File: m.Path, BuildID: l.buildID}
	f.Function, ok = r.name(pid, l, linked)
	isFinal = isFinal && (ok || !l.isLater && l.table == nil)
	if f.Function == "" {
		f.Address = linked + (address - call)
		f.Function = fmt.Sprintf("%#x", f.Address)
	}
	return f, isFinal
}

// symbolsOf is a module with its symbols.
type symbolsOf struct {
	*loaded
	id      string // of its table
	table   *Table // nil where the module is, and where it could not be read, or not yet
	isLater bool   // what could not be read now may be later
	isHung  bool   // its file system did not answer
}

// load opens the module behind a mapping once per process, and reads its symbols
// unless they were read in a file of another process; the lock is held.
func (r *Resolver) load(process uint64, pid uint32, m procmaps.Mapping, of kind) symbolsOf {
	k := moduleKey{process, m.Start, m.Inode}
	if l, ok := r.modules.Get(k); ok {
		if l.module == nil && l.until.IsZero() {
			return symbolsOf{loaded: l.loaded}
		}
		id := r.contents.table(l.loaded, of)
		if t := r.tables.get(id); t != nil {
			return symbolsOf{loaded: l.loaded, id: id, table: t}
		}
		// Its table was dropped for others, or could not be read then: read it again.
		if r.now().Before(l.until) || !r.mayRead(r.mappings.Tenant(pid)) {
			return symbolsOf{loaded: l.loaded, id: id, isLater: true}
		}
	}
	began := time.Now()
	s := r.read(pid, m, of)
	l := mapped{loaded: s.loaded}
	if s.isHung { // all others have waited, too
		r.spent.Take(r.mappings.Tenant(pid), time.Since(began), r.now())
	}
	if s.isHung || s.isLater && s.module == nil {
		l.until = r.now().Add(lookAgain)
	}
	r.modules.Put(k, l)
	return s
}

func (r *Resolver) read(pid uint32, m procmaps.Mapping, of kind) symbolsOf {
	file, err := r.mappings.Open(pid, m)
	if err != nil {
		// The process has ended, most of all: the state of the file belongs to others.
		l := r.files.known(pid, m)
		id := r.contents.table(l, of)
		t := r.tables.get(id)
		if t == nil && l.module != nil {
			r.files.want(l.wanted(of))
		}
		isHung := errors.Is(err, procmaps.ErrHangs)
		return symbolsOf{l, id, t, isHung, isHung}
	}
	defer file.Close()
	known := r.files.known(pid, m)
	if known.file != file.Identity() {
		known = &loaded{}
	} else { // as in another process
		id := r.contents.table(known, of)
		if t := r.tables.get(id); t != nil || known.module == nil {
			return symbolsOf{loaded: known, id: id, table: t}
		}
	}
	tenant := r.mappings.Tenant(pid)
	if !r.mayRead(tenant) {
		return symbolsOf{loaded: known, id: r.contents.table(known, of), isLater: true}
	}
	l, reader, cost, err := open(file)
	r.spent.Take(tenant, cost, r.now())
	if err != nil {
		return symbolsOf{loaded: l, isLater: reader.hung, isHung: reader.hung}
	}
	r.files.put(pid, l, m)
	if l.module == nil {
		return symbolsOf{loaded: l}
	}
	w := r.plan(opened{l, reader, pid, m.Path}, of)
	w.do()
	t := r.finish(w)
	id := r.contents.table(l, of) // names of it may be known without the table
	return symbolsOf{l, id, t, t == nil, reader.hung || w.isHung()}
}

// Interpreter finds the module that runs Python in a process, to know where the
// native run of a stack ends. runtime is the address of _PyRuntime, 0 if it is
// not known. contains reports whether a frame's address is in it; isFinal is false if the process could not be
// read, and was read before since, when the stack was recorded.
func (r *Resolver) Interpreter(pid uint32, runtime uint64, since time.Time) (contains func(address uint64) bool, isFinal bool) {
	var file procmaps.Mapping
	isFinal = true
	if runtime != 0 {
		// It is data, which no mapping of code covers: the process is read again, if its tenant may have that.
		_, _, isFinal = r.mappings.FindSince(pid, runtime, since)
		for _, m := range r.mappings.Around(pid, runtime) {
			if m.Start < runtime { // a library's data follows its code
				file = m
			}
		}
	}
	return func(address uint64) bool {
		m, ok := r.mappings.Find(pid, address)
		if !ok || !m.IsFile() {
			return false
		}
		if file.Inode != 0 {
			return m.Inode == file.Inode && m.Path == file.Path
		}
		return isPython(path.Base(m.Path))
	}, isFinal
}

// isPython knows libpython3.12.so.1.0, python3.12 and python by their names.
func isPython(base string) bool {
	if strings.HasPrefix(base, "libpython") {
		return true
	}
	version, ok := strings.CutPrefix(base, "python")
	return ok && strings.Trim(version, "0123456789.dmt") == ""
}

// Demangle turns a C++ or Rust symbol into what a person wrote; other names,
// and names too long to try, stay as they are.
func Demangle(name string) string {
	if len(name) > maxMangled {
		return name
	}
	return demangle.Filter(name, demangle.NoClones, demangle.MaxLength(maxDemangledPow))
}

// tables keeps symbol tables, those used last, within tableBytes. A tenant that has more than half of it
// makes room by its own.
type tables struct {
	byID    map[string]*list.Element
	used    *list.List // of kept; front: used last
	bytes   int
	bytesOf map[procmaps.Tenant]int // of those that it had read first
}

type kept struct {
	id     string
	table  *Table
	tenant procmaps.Tenant
}

func (t *tables) get(id string) *Table {
	e, ok := t.byID[id]
	if !ok {
		return nil
	}
	t.used.MoveToFront(e)
	return e.Value.(*kept).table
}

// peek is get without a use.
func (t *tables) peek(id string) *Table {
	if e, ok := t.byID[id]; ok {
		return e.Value.(*kept).table
	}
	return nil
}

func (t *tables) put(id string, table *Table, tenant procmaps.Tenant) {
	t.byID[id] = t.used.PushFront(&kept{id, table, tenant})
	t.bytes += table.Bytes()
	t.bytesOf[tenant] += table.Bytes()
	for t.bytes > tableBytes && t.used.Len() > 1 {
		t.drop(t.last(tenant))
	}
}

// last is the table that is dropped for a new one, which is at the front.
func (t *tables) last(tenant procmaps.Tenant) *list.Element {
	if t.bytesOf[tenant] > tableBytes/2 {
		for e := t.used.Back(); e != t.used.Front(); e = e.Prev() {
			if e.Value.(*kept).tenant == tenant {
				return e
			}
		}
	}
	return t.used.Back()
}

func (t *tables) drop(e *list.Element) {
	k := t.used.Remove(e).(*kept)
	delete(t.byID, k.id)
	t.bytes -= k.table.Bytes()
	if t.bytesOf[k.tenant] -= k.table.Bytes(); t.bytesOf[k.tenant] == 0 {
		delete(t.bytesOf, k.tenant)
	}
}
