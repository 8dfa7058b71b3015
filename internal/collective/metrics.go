// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"strconv"
	"time"
)

// Metric is one sample of a rank's progress. Every node exports them, so that the rules
// of dashboards/nccl.yaml can judge ranks of many nodes like the Analyzer judges those of
// one. The labels are added to those of the process.
type Metric struct {
	Instrument *Instrument
	Labels     [][2]string
	Value      float64
}

// Instrument describes a metric. Name is OpenTelemetry's; Prometheus is the name that the
// Prometheus exporter derives.
type Instrument struct {
	Name, Prometheus, Unit, Description string
	IsCounter                           bool
}

// Instruments for the progress of ranks.
var (
	sizeInstrument      = &Instrument{Name: "nccl.communicator.size", Prometheus: "nccl_communicator_size", Unit: "{rank}", Description: "Ranks in the communicator, 0 if unknown"}
	issuedInstrument    = &Instrument{Name: "nccl.rank.issued", Prometheus: "nccl_rank_issued_total", Unit: "{collective}", Description: "Collectives that the rank has issued", IsCounter: true}
	doneInstrument      = &Instrument{Name: "nccl.rank.done", Prometheus: "nccl_rank_done_total", Unit: "{collective}", Description: "Collectives of the rank that are known to be complete", IsCounter: true}
	passedInstrument    = &Instrument{Name: "nccl.rank.all_arrived", Prometheus: "nccl_rank_all_arrived_total", Unit: "{collective}", Description: "Newest collective whose completion by the rank shows that all ranks have issued it; that of a broadcast does not", IsCounter: true}
	issuedAtInstrument  = &Instrument{Name: "nccl.rank.issued_time", Prometheus: "nccl_rank_issued_time_seconds", Unit: "s", Description: "When the rank issued its newest collective (Unix time)"}
	doneAtInstrument    = &Instrument{Name: "nccl.rank.done_time", Prometheus: "nccl_rank_done_time_seconds", Unit: "s", Description: "When the newest complete one was known to be complete (Unix time)"}
	waitsInstrument     = &Instrument{Name: "nccl.rank.waits", Prometheus: "nccl_rank_waits", Description: "1: the rank waits for a collective now"}
	blockedInstrument   = &Instrument{Name: "nccl.rank.blocked", Prometheus: "nccl_rank_blocked_ratio", Unit: "1", Description: "Share of the last minute or so in which a thread of the process waited for a collective, of any communicator, on the rank's GPU"}
	firstInstrument     = &Instrument{Name: "nccl.rank.first", Prometheus: "nccl_rank_first", Description: "1: the pending operation of the rank in this communicator is the first in its stream; 0: one of another communicator precedes it"}
	deadInstrument      = &Instrument{Name: "nccl.rank.dead", Prometheus: "nccl_rank_dead", Description: "1: the process has exited, is stopped, or has aborted or destroyed the communicator (state)"}
	lateInstrument      = &Instrument{Name: "nccl.rank.late", Prometheus: "nccl_rank_late", Description: "1: the communicator is older than the observation, so its numbers cannot be compared"}
	markInstrument      = &Instrument{Name: "nccl.rank.milestone", Prometheus: "nccl_rank_milestone", Description: "Newest collective of the rank whose number is a multiple of 16"}
	markAtInstrument    = &Instrument{Name: "nccl.rank.milestone_time", Prometheus: "nccl_rank_milestone_time_seconds", Unit: "s", Description: "When the rank issued it (Unix time)"}
	digestInstrument    = &Instrument{Name: "nccl.rank.milestone_digest", Prometheus: "nccl_rank_milestone_digest", Description: "Hash of all collectives of the rank up to that one: the same for all ranks that have issued the same ones"}
	signatureInstrument = &Instrument{Name: "nccl.rank.pending_signature", Prometheus: "nccl_rank_pending_signature", Description: "Hash of kind, count, type, reduction and root of a collective (seq) that was issued at least 5 s ago and is not known to be complete on all ranks"}
	shareInstrument     = &Instrument{Name: "nccl.rank.wait", Prometheus: "nccl_rank_wait_ratio", Unit: "1", Description: "Share of the last half to whole minute in which the rank was in a collective before the others arrived, at most; for communicators whose ranks are all visible"}
	iterationInstrument = &Instrument{Name: "nccl.iteration", Prometheus: "nccl_iteration_seconds", Unit: "s", Description: "How long an iteration takes: the shortest sequence of collectives that repeats, of one rank of the communicator"}
	peerInstrument      = &Instrument{Name: "nccl.rank.peer_issued", Prometheus: "nccl_rank_peer_issued_total", Unit: "{operation}", Description: "Sends to or receives from a peer that the rank has issued", IsCounter: true}
	peerDoneInstrument  = &Instrument{Name: "nccl.rank.peer_done", Prometheus: "nccl_rank_peer_done_total", Unit: "{operation}", Description: "Those known to be complete", IsCounter: true}
	peerWaitsInstrument = &Instrument{Name: "nccl.rank.peer_waits", Prometheus: "nccl_rank_peer_waits", Description: "1: the rank waits for one of them now"}
)

// Instruments are all that Metrics uses.
func Instruments() []*Instrument {
	return []*Instrument{sizeInstrument, issuedInstrument, doneInstrument, passedInstrument, issuedAtInstrument, doneAtInstrument, waitsInstrument, blockedInstrument, iterationInstrument,
		firstInstrument, deadInstrument, lateInstrument, markInstrument, markAtInstrument, digestInstrument, signatureInstrument, shareInstrument,
		peerInstrument, peerDoneInstrument, peerWaitsInstrument}
}

// Metrics of a rank. toWall is added to its times to get Unix time.
func (s *Status) Metrics(toWall time.Duration) []Metric {
	out := make([]Metric, 0, 15+3*len(s.Peers)+len(s.Pending))
	labels := [][2]string{{"communicator", s.Communicator.ID()}, {"communicator_name", s.Communicator.Name}, {"rank", strconv.Itoa(s.Rank)}}
	if s.Several {
		labels = append(labels, [2]string{"device", strconv.Itoa(s.Device)})
	}
	add := func(i *Instrument, value float64, more ...[2]string) {
		out = append(out, Metric{i, append(labels[:len(labels):len(labels)], more...), value})
	}
	flag := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	at := func(t Time) float64 { return (time.Duration(t) + toWall).Seconds() }
	add(sizeInstrument, float64(s.Communicator.Size))
	add(issuedInstrument, float64(s.Issued))
	add(doneInstrument, float64(s.Done))
	add(passedInstrument, float64(s.AllArrived))
	if s.IssuedAt != 0 {
		add(issuedAtInstrument, at(s.IssuedAt))
	}
	if s.DoneAt != 0 {
		add(doneAtInstrument, at(s.DoneAt))
	}
	add(waitsInstrument, flag(s.Waits))
	add(blockedInstrument, s.Blocked)
	add(firstInstrument, flag(s.First))
	add(deadInstrument, flag(s.State.IsDead()), [2]string{"state", s.deadState()})
	add(lateInstrument, flag(s.Late))
	if s.WaitShare >= 0 && !s.Late {
		add(shareInstrument, s.WaitShare)
	}
	if s.Iteration > 0 {
		add(iterationInstrument, s.Iteration.Seconds())
	}
	if s.Mark != 0 {
		add(markInstrument, float64(s.Mark))
		add(markAtInstrument, at(s.MarkAt))
	}
	if !s.Late {
		if s.MarkDigest != 0 {
			add(digestInstrument, float64(s.MarkDigest))
		}
		for _, op := range s.Pending {
			add(signatureInstrument, float64(op.Signature().Number()), [2]string{"seq", strconv.FormatUint(op.Seq, 10)})
		}
	}
	for _, p := range s.Peers {
		// Both ends have the same source and destination.
		who := [][2]string{{"direction", p.Kind.String()}, {"source", strconv.Itoa(s.Rank)}, {"destination", strconv.Itoa(p.Peer)}}
		if p.Kind == Recv {
			who[1][1], who[2][1] = who[2][1], who[1][1]
		}
		add(peerInstrument, float64(p.Issued), who...)
		add(peerDoneInstrument, float64(p.Done), who...)
		add(peerWaitsInstrument, flag(p.Waits), who...)
	}
	return out
}

// deadState is empty while the rank is alive: running and sleeping alternate.
func (s *Status) deadState() string {
	if s.State.IsDead() {
		return s.State.String()
	}
	return ""
}
