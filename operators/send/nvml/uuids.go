// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// queryInterval is the interval at which the driver is queried for contexts:
	// short enough for every window to include a process that began within it.
	queryInterval = 2 * time.Second
	// remember is how long a process that the driver no longer lists keeps its GPU:
	// its last rows may wait for a server.
	remember = 10 * time.Minute
)

// UUIDs finds the GPU that a process uses: the one on which the driver lists a context, or memory, of
// it. CUDA's ordinals do not identify it, because each process has its own
// (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER). It is safe for concurrent use.
type UUIDs struct {
	now func() time.Time

	mu      sync.Mutex
	library Library
	list    *query[[]ProcessMemory] // of library
	at      time.Time               // of the last reading
	latest  map[uint32]string       // by pid; "" with contexts on several GPUs
	known   map[uint64]*knownGPU    // by a process's ID: pids are reused
}

type knownGPU struct {
	uuid string
	used time.Time
}

// NewUUIDs opens the library. It is an error if there is none. info is called when the driver stops
// answering, and when it answers again.
func NewUUIDs(open func() (Library, error), info func(string)) (*UUIDs, error) {
	library, err := openInTime(open)
	if err != nil {
		return nil, fmt.Errorf("query the driver for GPUs of processes: %w", err)
	}
	return &UUIDs{now: time.Now, library: library, known: map[uint64]*knownGPU{}, list: &query[[]ProcessMemory]{
		ask: library.Processes, info: info, missing: "profiles of new processes have no GPU label"}}, nil
}

// Of returns the UUID of the process's GPU; "" if it is unknown, or if there are several:
// an ordinal does not identify one of them. It does not wait for a driver that does not answer: then
// it returns what is known.
func (u *UUIDs) Of(p profile.Process) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.library == nil {
		return ""
	}
	now := u.now()
	if now.Sub(u.at) >= queryInterval {
		u.read(now)
	}
	k := u.known[p.ID]
	if k == nil {
		k = &knownGPU{}
		u.known[p.ID] = k
	}
	k.used = now
	if uuid, ok := u.latest[p.PID]; ok {
		k.uuid = uuid
	}
	return k.uuid
}

func (u *UUIDs) read(now time.Time) {
	list, _, _ := u.list.get()
	u.at, u.latest = now, map[uint32]string{}
	for _, m := range list {
		if uuid, ok := u.latest[m.PID]; ok && uuid != m.Device.UUID {
			u.latest[m.PID] = ""
		} else {
			u.latest[m.PID] = m.Device.UUID
		}
	}
	for id, k := range u.known {
		if now.Sub(k.used) > remember {
			delete(u.known, id)
		}
	}
}

// Close ends the use of the library. Of returns "" afterwards. If the driver does not answer, the
// library stays open.
func (u *UUIDs) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.library != nil {
		u.list.close(u.library.Close)
		u.library = nil
	}
}
