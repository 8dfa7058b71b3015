// SPDX-License-Identifier: Apache-2.0

// Package simnodes answers as the daemons of many nodes with GPUs, in one process on
// loopback, for tests of those who collect from all of them.
//
// Each node runs two gadget instances, cuda_alloc and nccl_trace, and emits their tables by
// Inspektor Gadget's own API, at its own moment of each interval and by a boot clock of its own.
// What the processes of the nodes do is a function of the time alone: jobs of NCCL make steps,
// and some have a fault, which is the truth that a test compares verdicts with. The same seed
// gives the same jobs and faults.
package simnodes

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Config of a Fleet.
type Config struct {
	Seed  uint64
	Nodes int
	// Processes of a node share its 8 GPUs; default 16.
	Processes int
	// Jobs of NCCL, of 2 to MaxRanks ranks; a process is at most one rank of one job.
	Jobs, MaxRanks int
	// Stacks that allocate memory, of each process; default 4.
	Stacks int
	// Interval between two tables of an instance; default 1 s.
	Interval time.Duration
	// Fault is when the first job gets its fault, after the fleet's beginning; others follow
	// within FaultSpread.
	Fault, FaultSpread time.Duration
	// Straggle is by how much stragglers are late in each step; 0: jobs have none.
	Straggle time.Duration
	// Namespaces of Kubernetes that jobs are in, in turn; processes of no job are in the last one.
	// Default: training.
	Namespaces []string
	// Lies of daemons, by the node's number.
	Lies map[int]Lie
}

// devices of a node.
const devices = 8

// Fleet is the nodes. Its methods are safe for concurrent use.
type Fleet struct {
	cfg   Config
	begin time.Time
	jobs  []*Job
	nodes []*node
	// stacks that allocate, of all processes.
	stacks []string
	*schema
}

// slot is a process: of a node, and maybe of a job.
type slot struct {
	process uint64 // id, not the same on any two nodes
	pid     uint32
	device  int32
	job     *Job // nil: of no job
	rank    int
	pod     string
	// namespace of Kubernetes.
	namespace string
	// communicators that it is a rank of, those of tensor groups first.
	communicators []communicator
}

// mix is splitmix64's finaliser: every bit of the input reaches every bit of the output.
func mix(all ...uint64) (x uint64) {
	for _, n := range all {
		x = (x ^ n) + 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}

// New returns a fleet whose time begins now.
func New(cfg Config) (*Fleet, error) {
	cfg.Processes, cfg.Stacks = cmp.Or(cfg.Processes, 16), cmp.Or(cfg.Stacks, 4)
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	if len(cfg.Namespaces) == 0 {
		cfg.Namespaces = []string{"training"}
	}
	if cfg.Nodes < 1 || cfg.Processes < 1 || cfg.Jobs < 0 || cfg.Stacks < 1 || cfg.Jobs > 0 && cfg.MaxRanks < 2 {
		return nil, errors.New("a fleet has nodes, processes, stacks, and jobs of 2 ranks at least")
	}
	tables, err := newSchema()
	if err != nil {
		return nil, err
	}
	f := &Fleet{cfg: cfg, begin: time.Now(), schema: tables}
	for k := range cfg.Stacks {
		f.stacks = append(f.stacks, fmt.Sprintf("<module> (serve.py:3); forward (model.py:%d); allocate (cache.py:%d)", 100+k, 200+k))
	}
	slots := make([]slot, cfg.Nodes*cfg.Processes)
	if err := f.makeJobs(slots); err != nil {
		return nil, err
	}
	// Ranks are by node, as schedulers place them, and a job's nodes are anywhere.
	places := make([]int, cfg.Nodes)
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int {
		return cmp.Compare(mix(cfg.Seed, 1, uint64(a)), mix(cfg.Seed, 1, uint64(b)))
	})
	f.nodes = make([]*node, cfg.Nodes)
	for i, place := range places {
		f.nodes[place] = f.newNode(place, slots[i*cfg.Processes:(i+1)*cfg.Processes])
	}
	for _, j := range f.jobs {
		s := j.First + j.Culprit
		j.node, j.pid = nodeName(places[s/cfg.Processes]), slots[s].pid
	}
	return f, nil
}

// makeJobs divides the slots: few jobs are large, and most are small.
func (f *Fleet) makeJobs(slots []slot) error {
	next := 0
	for n := range f.cfg.Jobs {
		size := int(float64(min(f.cfg.MaxRanks, len(slots)/3)) / math.Pow(float64(n+1), 1.25))
		size = max(2, size/4*4)
		if next+size > len(slots) {
			return fmt.Errorf("%d processes are too few for job %d of %d ranks", len(slots), n, size)
		}
		j := f.newJob(n, next, size)
		for rank := range size {
			s := &slots[next+rank]
			s.job, s.rank, s.namespace = j, rank, f.cfg.Namespaces[n%len(f.cfg.Namespaces)]
		}
		f.jobs = append(f.jobs, j)
		next += size
	}
	return nil
}

func nodeName(n int) string { return fmt.Sprintf("node-%04d", n) }

// Now is the fleet's time.
func (f *Fleet) Now() time.Duration { return time.Since(f.begin) }

// Wall is a moment of the fleet by the wall clock.
func (f *Fleet) Wall(t time.Duration) time.Time { return f.begin.Add(t) }

// Jobs of the fleet, the largest first.
func (f *Fleet) Jobs() []*Job { return f.jobs }

// Ranks is how many ranks all communicators have together.
func (f *Fleet) Ranks() (n int) {
	for _, j := range f.jobs {
		for _, c := range j.communicators() {
			n += c.size * c.count
		}
	}
	return n
}
