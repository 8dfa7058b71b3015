// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"
	"sync"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const (
	// ask is how often the driver is asked where contexts are: often enough for
	// every window to know a process that began within it.
	ask = 2 * time.Second
	// remember is for how long a process that the driver no longer lists keeps its
	// GPU: its last rows may wait for a server.
	remember = 10 * time.Minute
)

// UUIDs tells which GPU a process works on: the one on which the driver knows a
// context of it. CUDA's ordinals do not tell, because each process has its own
// (CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER). It is safe for concurrent use.
type UUIDs struct {
	now func() time.Time

	mu      sync.Mutex
	library Library
	at      time.Time            // of the last reading
	latest  map[uint32]string    // by pid; "" with contexts on several GPUs
	known   map[uint64]*knownGPU // by a process's ID: pids are used again
}

type knownGPU struct {
	uuid  string
	asked time.Time
}

// NewUUIDs opens the library. It is an error where there is none.
func NewUUIDs(open func() (Library, error)) (*UUIDs, error) {
	library, err := open()
	if err != nil {
		return nil, fmt.Errorf("ask the driver for GPUs of processes: %w", err)
	}
	return &UUIDs{now: time.Now, library: library, known: map[uint64]*knownGPU{}}, nil
}

// Of is the UUID of the process's GPU; "" where that is not known, or where it is
// several: nothing says which of them an ordinal is.
func (u *UUIDs) Of(p profile.Process) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.library == nil {
		return ""
	}
	now := u.now()
	if now.Sub(u.at) >= ask {
		u.read(now)
	}
	k := u.known[p.ID]
	if k == nil {
		k = &knownGPU{}
		u.known[p.ID] = k
	}
	k.asked = now
	if uuid, ok := u.latest[p.PID]; ok {
		k.uuid = uuid
	}
	return k.uuid
}

func (u *UUIDs) read(now time.Time) {
	u.at, u.latest = now, map[uint32]string{}
	for _, m := range u.library.Processes() {
		if uuid, ok := u.latest[m.PID]; ok && uuid != m.Device.UUID {
			u.latest[m.PID] = ""
		} else {
			u.latest[m.PID] = m.Device.UUID
		}
	}
	for id, k := range u.known {
		if now.Sub(k.asked) > remember {
			delete(u.known, id)
		}
	}
}

// Close ends the use of the library. Nothing is known afterwards.
func (u *UUIDs) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.library != nil {
		u.library.Close()
		u.library = nil
	}
}
