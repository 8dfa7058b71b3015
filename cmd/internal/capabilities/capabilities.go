// SPDX-License-Identifier: Apache-2.0

// Package capabilities drops the rights of root that tracing does not take.
package capabilities

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Tracing are the capabilities that a gadget needs as long as it runs, which attaches to processes that start later.
var Tracing = []cap.Value{
	cap.SYS_ADMIN,          // namespaces, fanotify, and what BPF and PERFMON allow on kernels before 5.8
	cap.BPF,                // maps and programs
	cap.PERFMON,            // probes, samples, reading memory in programs
	cap.SYS_PTRACE,         // /proc/PID/root, /proc/PID/mem
	cap.CHECKPOINT_RESTORE, // /proc/PID/map_files
	cap.SYSLOG,             // addresses in /proc/kallsyms
	cap.SYS_RESOURCE,       // locked memory for maps, on kernels before 5.11
	cap.DAC_OVERRIDE,       // sockets of container runtimes, files in a user's directory
	cap.DAC_READ_SEARCH,    // libraries of users
	cap.CHOWN,              // files for the user who used sudo
}

// Has reports whether this process may use a capability.
func Has(value cap.Value) bool {
	has, err := cap.GetProc().GetFlag(cap.Effective, value)
	return err == nil && has
}

// Keep drops, for all threads and for good, the capabilities that are not listed, from all sets: a
// program that this process or an exploit in it starts has no more than it, not even one with the
// set-user-ID bit. Missing capabilities stay missing.
func Keep(kept ...cap.Value) error {
	had := cap.GetProc()
	left := cap.NewSet()
	for _, value := range kept {
		permitted, err := had.GetFlag(cap.Permitted, value)
		if err != nil { // the kernel does not know it
			continue
		}
		if err := left.SetFlag(cap.Permitted, permitted, value); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
		if err := left.SetFlag(cap.Effective, permitted, value); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	_, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1)
	err = errors.Join(err, cap.ResetAmbient())
	if may, _ := had.GetFlag(cap.Effective, cap.SETPCAP); may {
		err = errors.Join(err, dropBounds(left))
	}
	if err = errors.Join(err, left.SetProc()); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// dropBounds limits what a program that is started can get to a set.
func dropBounds(left *cap.Set) error {
	var drop []cap.Value
	for value := range cap.MaxBits() {
		bound, err := cap.GetBound(value)
		if stays, _ := left.GetFlag(cap.Permitted, value); err == nil && bound && !stays {
			drop = append(drop, value)
		}
	}
	return cap.DropBound(drop...)
}
