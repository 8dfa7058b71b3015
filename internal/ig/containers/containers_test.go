// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

type vars map[string]any

func (v vars) GetVar(name string) (any, bool) { x, ok := v[name]; return x, ok }
func (v vars) SetVar(name string, value any)  { v[name] = value }

type fakeInstance struct{ added, removed []*Container }

var errAttach = errors.New("cannot")

func (f *fakeInstance) AttachContainer(c *Container) error {
	f.added = append(f.added, c)
	return errAttach
}
func (f *fakeInstance) DetachContainer(c *Container) error {
	f.removed = append(f.removed, c)
	return nil
}

func TestFollowForwards(t *testing.T) {
	inner := &fakeInstance{}
	gc := vars{"ebpfInstance": inner}
	var added, removed []*Container
	require.NoError(t, Follow(gc,
		func(c *Container) { added = append(added, c) }, func(c *Container) { removed = append(removed, c) }))
	c := &Container{Mntns: 7}
	// As the container managers use it.
	manager := gc["ebpfInstance"].(interface {
		AttachContainer(*Container) error
		DetachContainer(*Container) error
	})
	require.ErrorIs(t, manager.AttachContainer(c), errAttach)
	require.NoError(t, manager.DetachContainer(c))
	require.Equal(t, []*Container{c}, inner.added)
	require.Equal(t, []*Container{c}, inner.removed)
	require.Equal(t, []*Container{c}, added)
	require.Equal(t, []*Container{c}, removed)

	require.ErrorIs(t, Follow(vars{}, nil, nil), ig.ErrAbsent)
	require.ErrorContains(t, Follow(vars{"ebpfInstance": 1}, nil, nil), "cannot attach containers")
}
