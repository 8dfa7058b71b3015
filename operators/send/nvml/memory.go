// SPDX-License-Identifier: Apache-2.0

package nvml

// Memory returns a function that reports the bytes that the driver counts now by process; nil without
// a driver, or while it does not answer. It opens the library for each call, so that a driver that is
// loaded later is found, and none is kept in use.
func Memory(open func() (Library, error)) func() map[uint32]int64 {
	q := &query[map[uint32]int64]{ask: func() map[uint32]int64 {
		library, err := open()
		if err != nil {
			return nil
		}
		defer library.Close()
		out := map[uint32]int64{}
		for _, p := range library.Processes() {
			out[p.PID] += max(p.Bytes, 0)
		}
		return out
	}}
	return func() map[uint32]int64 {
		bytes, _, _ := q.get()
		return bytes
	}
}
