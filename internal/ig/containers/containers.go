// SPDX-License-Identifier: Apache-2.0

// Package containers follows the containers that a user selected, as Inspektor Gadget
// reports them to a gadget. It is apart from package ig, whose other users then are not
// linked with the clients of all container runtimes.
package containers

import (
	"fmt"

	containercollection "github.com/inspektor-gadget/inspektor-gadget/pkg/container-collection"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// Container is a container that the user's selection (-n, --podname, …) admits.
type Container = containercollection.Container

type attacher interface {
	AttachContainer(*Container) error
	DetachContainer(*Container) error
}

// Follow calls add for every container that the user selected, present and future, and
// remove when one ends. Call it in Instantiate; the callbacks begin before Start and run
// in other goroutines. Every call is forwarded to the gadget first, whose error is the
// one that counts.
func Follow(gc ig.Context, add, remove func(*Container)) error {
	v, ok := gc.GetVar(ig.VarInstance)
	if !ok {
		return fmt.Errorf("eBPF instance: %w", ig.ErrAbsent)
	}
	inner, ok := v.(attacher)
	if !ok {
		return fmt.Errorf("eBPF instance: %T cannot attach containers", v)
	}
	gc.SetVar(ig.VarInstance, &tee{inner, add, remove})
	return nil
}

type tee struct {
	inner       attacher
	add, remove func(*Container)
}

func (t *tee) AttachContainer(c *Container) error {
	err := t.inner.AttachContainer(c)
	t.add(c)
	return err
}

func (t *tee) DetachContainer(c *Container) error {
	err := t.inner.DetachContainer(c)
	t.remove(c)
	return err
}
