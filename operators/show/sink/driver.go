// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
)

const paramDriver = "driver-memory"

// Driver knows what the GPU's driver counts for a process beyond its rows
// (nvml.Frames). It is used by one goroutine at a time.
type Driver interface {
	Start() error
	See(rows []profile.Row)
	Rows() []profile.Row
	Close()
}

// startDriver is for runs that ask for it.
func (i *instance) startDriver(make func() Driver) error {
	if i.values[paramDriver] != "true" {
		return nil
	}
	if i.subject != profile.Memory || i.values[paramPprof] == "" && i.values[paramFlame] == "" {
		return fmt.Errorf("--%s needs --%s or --%s, of memory", paramDriver, paramPprof, paramFlame)
	}
	if make == nil {
		return fmt.Errorf("--%s: %w", paramDriver, errors.ErrUnsupported)
	}
	driver := make()
	if err := driver.Start(); err != nil {
		return fmt.Errorf("--%s: %w", paramDriver, err)
	}
	i.driver = driver
	return nil
}

// whole is the profile with what the driver counts beyond it.
func (i *instance) whole(p *profile.Profile) *profile.Profile {
	if i.driver == nil {
		return p
	}
	whole := profile.New(p.Time, append(slices.Clone(p.Rows), i.driver.Rows()...))
	whole.Duration, whole.Notes = p.Duration, p.Notes
	return whole
}

func (i *instance) stopDriver() {
	if i.driver != nil {
		i.driver.Close()
		i.driver = nil
	}
}
