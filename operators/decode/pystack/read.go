// SPDX-License-Identifier: Apache-2.0

package pystack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cilium/ebpf/btf"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	bpfiterns "github.com/inspektor-gadget/inspektor-gadget/pkg/utils/bpf-iter-ns"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/symbolize"
)

// haveTaskFromPID checks for the newest kernel function that the iterator needs.
func haveTaskFromPID() error {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	var function *btf.Func
	if err := spec.TypeByName("bpf_task_from_pid", &function); errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("--%s %s and --%s need Linux 6.2 or newer", paramMode, modeDump, paramWall)
	} else if err != nil {
		return fmt.Errorf("read the kernel's types: %w", err)
	}
	return nil
}

// sample runs the iterator at the requested frequency, or as fast as it can. Each
// period has one pass, at a random moment of it: see clock.
func (i *instance) sample(ctx context.Context, gc operators.GadgetContext) {
	interval := time.Second / time.Duration(i.frequency)
	began, slot, passes := time.Now(), 0, 0
	timer := time.NewTimer(rand.N(interval))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			reached := float64(passes) / time.Since(began).Seconds()
			if passes > 0 && reached < 0.9*float64(i.frequency) {
				gc.Logger().Warnf("--%s: %.1f samples per second instead of the requested %d", paramWall, reached, i.frequency)
			}
			return
		case <-timer.C:
		}
		if _, err := bpfiterns.ReadOnCurrentPidNs(i.link); err != nil {
			i.fail(gc, fmt.Errorf("read the threads: %w", err))
			return
		}
		passes++
		// Missed periods are not made up for.
		slot = max(slot+1, int(time.Since(began)/interval))
		timer.Reset(time.Until(began.Add(time.Duration(slot)*interval + rand.N(interval))))
	}
}

// Of a dump with native frames.
const (
	// dumpTries bounds how often the threads are read until the unwind information of all code is there.
	dumpTries = 50
	dumpPause = 20 * time.Millisecond
)

// records reads all threads. The first time it may meet code whose unwind information is being read.
func (i *instance) records(ctx context.Context, gc operators.GadgetContext) (records []Record, err error) {
	for try := range dumpTries {
		b, err := i.readAll()
		if err != nil {
			return nil, fmt.Errorf("read the threads: %w", err)
		}
		if records, err = Decode(b); err != nil {
			return nil, err
		}
		missing := uint64(0)
		for _, r := range records {
			if stack.Flags(r.Flags)&stack.NativeNotLoaded != 0 {
				missing++
			}
		}
		if missing == 0 || try == dumpTries-1 {
			break
		}
		ig.Retried(gc, "native_not_loaded", missing)
		select {
		case <-ctx.Done():
			return records, nil
		case <-time.After(dumpPause):
		}
	}
	return records, nil
}

func (i *instance) dump(ctx context.Context, gc operators.GadgetContext) error {
	records, err := i.records(ctx, gc)
	if err != nil {
		return err
	}
	threads := toThreads(records)
	if len(threads) == 0 {
		return noPython(gc)
	}
	known := newRoles(i.op.cfg.ProcFS)
	for n := range threads {
		threads[n].role = known.of(&threads[n])
	}
	if !i.text {
		return i.rows.emit(threads)
	}
	stacks, ok := symbolize.FromContext(gc)
	if !ok {
		return errors.New("the operator symbolize is not active")
	}
	containers, err := i.rows.containers(threads)
	if err != nil {
		return fmt.Errorf("look up the containers: %w", err)
	}
	return write(i.op.cfg.Text, i.op.cfg.ProcFS, threads, containers, func(t *thread) []string {
		if t.StackID == 0 {
			return []string{"(no Python frames)"}
		}
		return lines(stacks.Stack(t.Process, t.PID, t.StackID).Stack)
	})
}

// readAll runs the iterator in the host's PID namespace, because it reports the
// threads of the reader's.
func (i *instance) readAll() ([]byte, error) {
	// If /proc/1 is not readable, we are not in a pod.
	if inHost, err := host.IsHostPidNs(); err == nil && !inHost {
		return bpfiterns.ReadOnHostPidNs(i.link)
	}
	return bpfiterns.ReadOnCurrentPidNs(i.link)
}
