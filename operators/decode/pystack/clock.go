// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/cpus"
)

// clock runs a program on every CPU's own timer.
//
// The kernel's timer has a fixed period, even if a frequency is requested. A program with the
// same period would be sampled at the same place each time. So each CPU's period is chosen
// again at random every epoch, which has about 30 samples and a random length: over a run,
// every moment of a program's period is equally likely.
type clock struct {
	program   *ebpf.Program
	online    []int // CPUs at the start
	frequency int
	epoch     time.Duration // on average: from 0 to twice that
	fds       map[int]int   // of the timers, by CPU
}

// jitter is the maximum deviation of an epoch's rate from the frequency.
const jitter = 0.5

// newClock starts the timers. It is stopped by close, which closes the program, too.
func newClock(program *ebpf.Program, online []int, frequency int) (*clock, error) {
	c := &clock{program: program, online: online, frequency: frequency, epoch: epochOf(frequency, len(online)), fds: map[int]int{}}
	for _, cpu := range online {
		if err := c.start(cpu); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// start starts the timer of a CPU, also of one that was offline in between: its timer has ended.
func (c *clock) start(cpu int) error {
	if fd, is := c.fds[cpu]; is {
		_ = unix.Close(fd)
		delete(c.fds, cpu)
	}
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_CPU_CLOCK,
		Sample_type: unix.PERF_SAMPLE_RAW,
		Sample:      uint64(c.period()),
		Bits:        unix.PerfBitDisabled,
	}, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		return nil // the CPU went offline
	}
	if err != nil {
		return fmt.Errorf("open the clock of CPU %d: %w", cpu, err)
	}
	c.fds[cpu] = fd
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, c.program.FD()); err != nil {
		return fmt.Errorf("attach to the clock of CPU %d: %w", cpu, err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return fmt.Errorf("start the clock of CPU %d: %w", cpu, err)
	}
	return nil
}

// epochOf bounds our own overhead: a new period interrupts the CPU of the clock, 100 µs
// on a virtual machine, and there are at most 200 a second.
func epochOf(frequency, cpus int) time.Duration {
	return max(30*time.Second/time.Duration(frequency), 250*time.Millisecond, 5*time.Duration(cpus)*time.Millisecond)
}

// period chooses one at random. Each epoch ends within a period, which is lost: half of
// one on average, for which the rate compensates.
func (c *clock) period() time.Duration {
	rate := float64(c.frequency)*(1-jitter+2*jitter*rand.Float64()) + 0.5/c.epoch.Seconds()
	return time.Duration(float64(time.Second) / rate)
}

// length chooses that of an epoch at random, because equal ones would have a period, too.
func (c *clock) length() time.Duration { return rand.N(2 * c.epoch) }

// run chooses new periods, and starts the timers of CPUs that come online, until ctx ends.
func (c *clock) run(ctx context.Context, warn func(error)) {
	came := make(chan []int)
	go cpus.Watch(ctx, c.online, func(online []int) {
		select {
		case came <- online:
		case <-ctx.Done():
		}
	})
	timer := time.NewTimer(c.length())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case online := <-came:
			for _, cpu := range online {
				if err := c.start(cpu); err != nil {
					warn(err)
				}
			}
			continue
		case <-timer.C:
		}
		for _, fd := range c.fds {
			// A CPU that went offline keeps its period.
			nanoseconds := uint64(c.period())
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PERF_EVENT_IOC_PERIOD, uintptr(unsafe.Pointer(&nanoseconds)))
		}
		timer.Reset(c.length())
	}
}

func (c *clock) close() {
	for _, fd := range c.fds {
		_ = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_DISABLE, 0)
		_ = unix.Close(fd)
	}
	c.fds = nil
	_ = c.program.Close()
}
