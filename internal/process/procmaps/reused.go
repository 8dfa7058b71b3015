// SPDX-License-Identifier: Apache-2.0

package procmaps

import "time"

// renew retires the process of a pid that another one has now, whose end may not have been reported. What was looked up less
// than an age ago is not looked up again.
func (c *Cache) renew(pid uint32, age time.Duration) {
	c.mu.Lock()
	e := c.byPID[pid]
	if e == nil || time.Since(e.checked) < age {
		c.mu.Unlock()
		return
	}
	e.checked = time.Now()
	known := e.snapshot.Process.StartTime
	c.mu.Unlock()
	if start, err := StartTime(c.cfg.ProcFS, pid); err != nil || start == known {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byPID[pid] == e {
		c.retire(e)
		delete(c.byPID, pid)
	}
}
