// SPDX-License-Identifier: Apache-2.0

package simnodes

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	gadgetcontext "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-context"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"

	"github.com/gpu-gadgets/gpu-gadgets/internal/ig"
)

// node is one machine with a daemon.
type node struct {
	*schema
	fleet   *Fleet
	name    string
	claimed string        // the name of the node in its rows
	booted  time.Duration // how long before the fleet's beginning
	phase   time.Duration // of its tables in an interval
	slots   []slot
	kind    Lie
}

// schema is the tables of a gadget instance, which are the same on all nodes.
type schema struct {
	memory, communicators, threads *table
	infos                          map[string]*api.GadgetInfo // by the instance's id
}

// Ids of the two instances of each node.
const (
	memoryID = "00000000000000000000000000000a11"
	ranksID  = "0000000000000000000000000000bccc"
)

func newSchema() (*schema, error) {
	s := &schema{infos: map[string]*api.GadgetInfo{}}
	var err error
	err = s.add(memoryID, "cuda_alloc", func(register func(datasource.Type, string) (datasource.DataSource, error)) ([]*table, error) {
		s.memory, err = newAllocs(register)
		return []*table{s.memory}, err
	})
	if err != nil {
		return nil, err
	}
	err = s.add(ranksID, "nccl_trace", func(register func(datasource.Type, string) (datasource.DataSource, error)) ([]*table, error) {
		if s.communicators, err = newCommunicators(register); err != nil {
			return nil, err
		}
		s.threads, err = newThreads(register)
		return []*table{s.communicators, s.threads}, err
	})
	return s, err
}

func (s *schema) add(id, gadget string, declare func(func(datasource.Type, string) (datasource.DataSource, error)) ([]*table, error)) error {
	gc := gadgetcontext.New(context.Background(), gadget)
	tables, err := declare(gc.RegisterDataSource)
	if err != nil {
		return fmt.Errorf("describe %s: %w", gadget, err)
	}
	info, err := gc.SerializeGadgetInfo(false)
	if err != nil {
		return fmt.Errorf("describe %s: %w", gadget, err)
	}
	for i, ds := range info.GetDataSources() {
		ds.Id = uint32(i + 1)
		for _, t := range tables {
			if t.ds.Name() == ds.GetName() {
				t.id = ds.GetId()
			}
		}
	}
	info.Annotations = map[string]string{ig.AnnotationInstance: id}
	s.infos[id] = info
	return nil
}

func (f *Fleet) newNode(number int, slots []slot) *node {
	seed := mix(f.cfg.Seed, 3, uint64(number))
	n := &node{schema: f.schema, fleet: f, name: nodeName(number), slots: slots, kind: f.cfg.Lies[number],
		booted: time.Hour + time.Duration(mix(seed, 1)%uint64(1000*time.Hour)),
		phase:  time.Duration(mix(seed, 2) % uint64(f.cfg.Interval))}
	n.claimed = n.name
	if n.kind == OtherNode {
		n.claimed = nodeName((number + 1) % f.cfg.Nodes)
	}
	for i := range slots {
		s := &slots[i]
		s.process, s.pid, s.device = mix(seed, 4, uint64(i))|1, uint32(4000+17*i), int32(i%devices)
		s.pod = "idle-" + n.name
		s.namespace = cmp.Or(s.namespace, f.cfg.Namespaces[len(f.cfg.Namespaces)-1])
		if j := s.job; j != nil {
			s.pod = j.name() + "-" + n.name
			if j.hasTensor {
				s.communicators = append(s.communicators, j.communicatorOf(s.rank, true))
			}
			s.communicators = append(s.communicators, j.communicatorOf(s.rank, false))
		}
	}
	return n
}

// boot is the fleet's time by the node's boot clock, as the kernel has it.
func (n *node) boot(t time.Duration) uint64 { return uint64(n.booted + t) }

// tables of an instance at a time, as events.
func (n *node) tables(id string, t time.Duration) ([]*api.GadgetEvent, error) {
	var memory, communicators, threads []*api.DataElement
	for i := range n.slots {
		s := &n.slots[i]
		if id == memoryID {
			memory = append(memory, n.allocs(s, t)...)
		} else if s.job != nil {
			c, th := n.ranks(s, t)
			communicators, threads = append(communicators, c...), append(threads, th...)
		}
	}
	if id == memoryID {
		event, err := n.memory.packet(memory)
		return []*api.GadgetEvent{event}, err
	}
	first, err := n.communicators.packet(communicators)
	if err != nil {
		return nil, err
	}
	second, err := n.threads.packet(threads)
	return []*api.GadgetEvent{first, second}, err
}
