// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack"
	"github.com/gpu-gadgets/gpu-gadgets/operators/decode/drops"
)

// sentence is one thing that is known, or is not.
type sentence struct {
	Part string `json:"part"`
	Text string `json:"text"`
	// More is the command that shows more.
	More string `json:"more,omitempty"`
}

// named is how many lines a sentence names.
const named = 3

// page collects sentences.
type page struct {
	part   string
	all    []sentence
	isOver bool // no command shows more of processes that have ended
}

func (p *page) say(more, format string, args ...any) {
	if p.isOver {
		more = ""
	}
	p.all = append(p.all, sentence{p.part, fmt.Sprintf(format, args...), more})
}

// compose says it all. The caller's gadgets have ended: the facts do not change any more.
func compose(f *facts) []sentence {
	ids := strings.ReplaceAll(joined(f.alive()), " ", "")
	p := &page{part: "Process " + joined(f.pids), isOver: f.isOver()}
	for n, command := range f.commands {
		p.say("", "%d is %s; %s.", f.pids[n], brief(command, 90), f.howLong(f.pids[n]))
	}
	if children := f.children(); len(children) > 0 {
		more := ""
		if rest := len(children) - maxNamed; rest > 0 {
			more = fmt.Sprintf(" and %d more", rest)
		}
		p.say("", "Descendants that use the GPU: %s%s.", joined(children[:min(len(children), maxNamed)]), more)
	}
	composeMemory(p, f, ids)
	composeContexts(p, f, ids)
	composeCommunicators(p, f, ids)
	found := f.outcomes()
	composeRefused(p, f, found, ids)
	composeTime(p, f, ids)
	composeCollectives(p, f, ids)
	composeHolders(p, f, ids)
	composeBlame(p, f, found, ids)
	composeUnknown(p, f, ids)
	return p.all
}

func sumPlaces(places []*place, value func(*place) int64) (sum int64) {
	for _, p := range places {
		sum += value(p)
	}
	return sum
}

func inUse(p *place) int64 { return int64(p.now) }
func grown(p *place) int64 { return int64(p.low[1]) - int64(p.low[0]) }
func taken(p *place) int64 { return int64(p.taken) }
func kept(p *place) int64  { return int64(p.held) }
func waste(p *place) int64 { return int64(p.rounding) + int64(p.apart) }

// lines names the largest places with their figures.
func lines(places []*place, value func(*place) int64, whole int64) string {
	var out []string
	for n, p := range places {
		if n == named {
			out = append(out, fmt.Sprintf("and %d more", len(places)-n))
			break
		}
		out = append(out, fmt.Sprintf("%s (%s) by %s", profile.FormatBytes(value(p)), share(value(p), whole), frameOr(p.frame)))
	}
	return strings.Join(out, "\n")
}

func frameOr(frame string) string {
	if frame == "" {
		return "code without a name"
	}
	return frame
}

func composeMemory(p *page, f *facts, ids string) {
	p.part = "Memory"
	more := "ig-gpu record " + ids + " -o memory.html"
	holders := f.ranked(false, inUse)
	switch held := sumPlaces(holders, inUse); {
	case f.read == 0:
		p.say("ig-gpu check "+ids, "Unknown: no rows were read.")
		return
	case held == 0 && f.isOver():
		p.say("", "Nothing is held: a process that ends frees its memory.")
	case held == 0:
		p.say(more, "Nothing that was allocated during the watch is still held.")
	default:
		p.say(more, "Of what was allocated during the watch, %s is held:\n%s", profile.FormatBytes(held), lines(holders, inUse, held))
	}
	if keepers := f.ranked(false, kept); len(keepers) > 0 {
		sum := sumPlaces(keepers, kept)
		p.say("", "Of that, %s was released by hipMemRelease and is still held, until hipMemAddressFree frees its address range:\n%s", profile.FormatBytes(sum), lines(keepers, kept, sum))
	}
	composePeak(p, f, ids)
	compared := "ig-gpu run " + f.vendor.memory + " --pid " + ids + " --mark-out mark --mark-every 10m; ig-gpu leaks mark.*"
	if growers := f.growers(false); len(growers) > 0 {
		sum := sumPlaces(growers, grown)
		text := "It grew by " + profile.FormatBytes(f.growth())
		if f.growth() == 0 {
			text = "It did not grow in sum, but these lines hold more"
		}
		p.say(compared, "%s in the last %s:\n%s", text, f.since.Round(time.Second), lines(growers, grown, sum))
	} else if !f.isCompared() {
		p.say(compared, "Unknown: what grew. %s", f.whyNotCompared())
	} else {
		p.say("", "No line held more in the last third of the watch than in the one before.")
	}
	if through := f.ranked(false, taken); len(through) > 0 {
		sum := sumPlaces(through, taken)
		p.say("", "%s was allocated in total, most of it by %s (%s).", profile.FormatBytes(sum), frameOr(through[0].frame), profile.FormatBytes(taken(through[0])))
	}
	if tensors := f.ranked(true, inUse); len(tensors) > 0 {
		sum := sumPlaces(tensors, inUse)
		p.say("ig-gpu run "+f.vendor.memory+" --pid "+ids+" --torch on", "PyTorch's tensors hold %s of its pool:\n%s", profile.FormatBytes(sum), lines(tensors, inUse, sum))
		if growers, sum := f.tensorGrowth(); sum > 0 {
			p.say("", "They grew by %s in the last %s:\n%s", profile.FormatBytes(sum), f.since.Round(time.Second), lines(growers, grown, sumPlaces(growers, grown)))
		} else if f.isCompared() {
			p.say("", "They did not grow.")
		}
	}
	if wasted := f.ranked(true, waste); len(wasted) > 0 {
		rounding, apart := sumPlaces(wasted, func(p *place) int64 { return int64(p.rounding) }), sumPlaces(wasted, func(p *place) int64 { return int64(p.apart) })
		p.say("ig-gpu run "+f.vendor.memory+" --pid "+ids+" --waste", "No tensor uses %s of the pool's memory: %s was added to requests by rounding, and %s is unused in segments that tensors keep:\n%s",
			profile.FormatBytes(rounding+apart), profile.FormatBytes(rounding), profile.FormatBytes(apart), lines(wasted, waste, rounding+apart))
	}
}

func composeTime(p *page, f *facts, ids string) {
	p.part = "Time"
	more := "ig-gpu record " + ids + " --what launches -o timeline.html"
	launchers := f.waiters(func(w *waiting) uint64 { return w.launches })
	if len(launchers) == 0 {
		still := ""
		if len(f.users) > 0 && f.calledSince() == 0 {
			still = "ig-gpu dump " + ids + " --frozen 10s"
		}
		p.say(still, "No kernel was launched during the watch.")
	} else {
		var sum uint64
		for _, w := range launchers {
			sum += w.launches
		}
		p.say(more, "%d kernels and graphs were launched, %.0f per second, most by %s (%d).",
			sum, float64(sum)/max(f.watched, endsInterval).Seconds(), frameOr(launchers[0].frame), launchers[0].launches)
	}
	if waiters := f.waiters(func(w *waiting) uint64 { return w.waitNS }); len(waiters) > 0 {
		var sum uint64
		for _, w := range waiters {
			sum += w.waitNS
		}
		p.say(more, "Threads waited for the GPU for %s, most of it at %s (%s).", valueText(int64(sum), "nanoseconds"), frameOr(waiters[0].frame), valueText(int64(waiters[0].waitNS), "nanoseconds"))
	} else {
		p.say("", "No thread waited for the GPU in a call of the driver.")
	}
	if len(f.idle) > 0 {
		p.say("ig-gpu run "+f.vendor.launches+" --pid "+ids+" --gpu-idle 20 --with python", "%s", sentenceCase(strings.Join(f.idle, "\n")))
	}
}

// sentenceCase begins a message of the log as a sentence.
func sentenceCase(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func composeCollectives(p *page, f *facts, ids string) {
	if len(f.verdict) == 0 {
		return
	}
	p.part = "Collectives"
	for _, text := range f.verdict {
		p.say("ig-gpu run nccl_trace --host", "%s", text)
	}
}

// composeBlame names one line: that which has grown most, else that of a refusal, else
// the largest holder. Of PyTorch that is a line of tensors: which line has its pool request more
// from the driver is chance.
func composeBlame(p *page, f *facts, found outcomes, ids string) {
	p.part = "Look first at"
	growers, holders := f.growers(false), f.ranked(false, inUse)
	tensors, tensorGrowth := f.tensorGrowth()
	last := found.last()
	made := slices.DeleteFunc(f.ranked(true, inUse), func(p *place) bool { return p.frame == stack.BeforeAttach })
	switch {
	case len(f.verdict) > 0:
		p.say("ig-gpu dump "+ids, "%s", f.verdict[0])
	case tensorGrowth > 0:
		p.say("", "%s: tensors that it made hold %s", frameOr(tensors[0].frame), f.pace(min(grown(tensors[0]), tensorGrowth)))
	case len(growers) > 0:
		text := frameOr(growers[0].frame) + ": it holds " + f.pace(grown(growers[0]))
		if len(made) > 0 {
			text += " PyTorch's tensors do not grow: if its pool requested that memory, requests do not fit what they freed."
		}
		p.say("", "%s", text)
	case last != nil && f.isHeldFromBefore(last):
		p.say("", "No line: an allocation was refused at %s, but the lines that hold the memory are unknown. Watch the process from its start.", frameOr(last.Frame))
	case last != nil:
		p.say("", "%s: its allocation was refused.", frameOr(last.Frame))
	case len(made) > 0:
		p.say("", "%s: tensors that it made hold most (%s)%s.", frameOr(made[0].frame), profile.FormatBytes(inUse(made[0])), f.unlessUnknown(", and do not grow"))
	case len(holders) > 0:
		p.say("", "%s: it holds most (%s)%s.", frameOr(holders[0].frame), profile.FormatBytes(inUse(holders[0])), f.unlessUnknown(", and does not grow"))
	default:
		p.say("", "No line: nothing that the watch saw holds memory.")
	}
}

// unlessUnknown is the text if growth is known, and else that it is not.
func (f *facts) unlessUnknown(text string) string {
	if f.isCompared() {
		return text
	}
	return "; whether it grows is unknown"
}

// pace is how fast a holder grows.
func (f *facts) pace(grown int64) string {
	perHour := int64(float64(grown) * float64(time.Hour) / float64(max(f.since, time.Second)))
	return fmt.Sprintf("%s more than %s ago, which is %s per hour if it continues. A longer watch tells a leak from a cache that fills.",
		profile.FormatBytes(grown), f.since.Round(time.Second), profile.FormatBytes(perHour))
}

func composeUnknown(p *page, f *facts, ids string) {
	p.part = "Unknown"
	if f.driver >= 0 {
		if rest := f.unexplained(); rest > 0 {
			why := "is what the runtime itself needs."
			if kept := f.keptByPools(rest); kept != "" {
				why = "is what the runtime itself needs, or is " + kept
			}
			p.say("", "%s counts %s for the process; the line that holds %s of it is unknown: that was allocated before the watch began, or %s",
				f.vendor.driver, profile.FormatBytes(f.driver), profile.FormatBytes(rest), why)
		}
	} else {
		p.say("", "What was allocated before the watch began is not counted, and %s is not here to say how much it is. Watch the process from its start, or compare two marks.", f.vendor.source)
	}
	if len(f.users) == 0 {
		p.say("ig-gpu check "+ids, "The process had not loaded %s when the watch began.", f.vendor.library)
	}
	if !f.hasPython {
		p.say("", "No Python was found in the process: lines are native functions, where they have symbols.")
	}
	for _, gadget := range []string{f.vendor.memory, f.vendor.launches} {
		for _, reason := range slices.Sorted(maps.Keys(f.drops[gadget])) {
			words := drops.Words(reason)
			if count := f.drops[gadget][reason]; count > 0 && words.IsLoss() {
				p.say("", "Not recorded in full by %s: %d %s: %s [%s].", gadget, count, words.What, words.Effect, reason)
			}
		}
	}
	for _, text := range f.failed {
		p.say("ig-gpu check "+ids, "%s", text)
	}
}
