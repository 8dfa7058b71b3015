// SPDX-License-Identifier: Apache-2.0

package labels

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
)

func parse(t *testing.T, text string) Rules {
	t.Helper()
	rules, err := Parse(text)
	require.NoError(t, err)
	return rules
}

// proc is a /proc with processes of the test's.
type proc struct {
	t   *testing.T
	dir string
}

func (p proc) write(pid int, title string, environment ...string) {
	dir := filepath.Join(p.dir, fmt.Sprint(pid))
	require.NoError(p.t, os.MkdirAll(dir, 0o700))
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, "cmdline"), []byte(title+"\x00\x00\x00"), 0o600))
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, "environ"), []byte(strings.Join(environment, "\x00")), 0o600))
}

func TestLabelsComeFromTitleAndEnvironment(t *testing.T) {
	p := proc{t, t.TempDir()}
	p.write(1, "ray::Trainer.step", "PATH=/bin", "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "TEAM=vision, lab")
	p.write(2, "VLLM::Worker_TP1", "XSLURM_JOB_ID=1", "TEAM=")
	p.write(3, "python3\x00train.py\x00--lr=0.1")
	s := New(Config{ProcFS: p.dir, Values: 10,
		Rules: parse(t, `slurm,ray,vllm,team=env:TEAM,script=title:(\w{1,20})\.py`)})
	require.Equal(t, `slurm_job=4711,slurm_step=0,ray=Trainer,vllm=,team="vision, lab",script=`, s.Of(10, 1))
	require.Equal(t, "slurm_job=,slurm_step=,ray=,vllm=Worker_TP1,team=,script=", s.Of(20, 2))
	require.Equal(t, "slurm_job=,slurm_step=,ray=,vllm=,team=,script=train", s.Of(30, 3))
	require.Equal(t, "slurm_job=,slurm_step=,ray=,vllm=,team=,script=", s.Of(40, 4), "it has exited")
}

// TestAWorkerThatHasSetATitleHasItsParentsVariables: the title is written over both, and the rest is zeros.
func TestAWorkerThatHasSetATitleHasItsParentsVariables(t *testing.T) {
	p := proc{t, t.TempDir()}
	p.write(1, "raylet", "PATH=/bin", "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0")
	p.write(2, "ray::Trainer.step", strings.Repeat("\x00", 100))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "2/stat"), []byte("2 (ray::Trainer.st) S 1 1 1\n"), 0o600))
	s := New(Config{ProcFS: p.dir, Values: 10, Rules: parse(t, "slurm,ray")})
	require.Equal(t, "slurm_job=4711,slurm_step=0,ray=Trainer", s.Of(20, 2))
}

func TestTitleIsReadAgainUntilItHasAValue(t *testing.T) {
	p := proc{t, t.TempDir()}
	p.write(1, "ray::IDLE")
	now := time.Unix(0, 0)
	s := New(Config{ProcFS: p.dir, Values: 10, Rules: parse(t, "ray"), Now: func() time.Time { return now }})
	require.Equal(t, "ray=", s.Of(1, 1))
	p.write(1, "ray::Actor")
	require.Equal(t, "ray=", s.Of(1, 1), "not at each row")
	now = now.Add(again)
	require.Equal(t, "ray=Actor", s.Of(1, 1))
	p.write(1, "ray::Other")
	now = now.Add(again)
	require.Equal(t, "ray=Actor", s.Of(1, 1), "a process stays in its series")
	now = now.Add(2 * forget)
	require.Equal(t, "ray=Other", s.Of(2, 1), "another process of that pid")
	require.Len(t, s.processes, 1, "the old one is forgotten")
}

func TestTitlesOfRayAreClassesFunctionsAndDeployments(t *testing.T) {
	rule := parse(t, "ray")[0]
	for title, want := range map[string]string{
		"ray::Trainer.step":                       "Trainer",
		"ray::load_batch":                         "load_batch",
		"ray::Trainer.step()":                     "Trainer",
		"ray::ServeReplica:llm:LLMServer.chat":    "LLMServer",
		"ray::ServeReplica:default:my-model":      "my-model",
		"ray::ServeReplica:LLMServer.chat":        "LLMServer",
		"ray::ServeReplica:llm:LLMServer:qwen-7b": "LLMServer",
		"ray::ServeReplica:my.app:LLMServer.chat": "LLMServer",
		"ray::ServeReplica:llm:":                  "llm",
		"ray::ServeReplica":                       "ServeReplica",
		"ray::ServeController.listen":             "ServeController",
		"ray::IDLE":                               "",
		"python3 ray::Trainer":                    "",
	} {
		require.Equal(t, want, rule.match(title), title)
	}
}

func TestValuesAreBounded(t *testing.T) {
	p := proc{t, t.TempDir()}
	var warned []string
	s := New(Config{ProcFS: p.dir, Values: 3, Rules: parse(t, "team=env:TEAM,job=env:JOB"), Warn: func(l string) { warned = append(warned, l) }})
	got := map[string]int{}
	for i := range 10 {
		p.write(i+1, "x", fmt.Sprintf("TEAM=%d", i), "JOB=same")
		got[s.Of(uint64(i), uint32(i+1))]++
	}
	require.Equal(t, map[string]int{"team=0,job=same": 1, "team=1,job=same": 1, "team=2,job=same": 1, "team=other,job=same": 7}, got)
	require.Equal(t, []string{"team"}, warned)
	require.Equal(t, map[string]uint64{"team": 7}, s.Others())
}

// A daemon sees more jobs than a label has values.
func TestValuesThatNothingHasAreFreed(t *testing.T) {
	p := proc{t, t.TempDir()}
	now := time.Unix(0, 0)
	s := New(Config{ProcFS: p.dir, Values: 2, Rules: parse(t, "team=env:TEAM,request=span:route"), Now: func() time.Time { return now }})
	of := func(pid int, route string) string {
		return s.OfRow(uint64(pid), uint32(pid), Row{Span: uint64(pid), Attribute: func(string) string { return route }})
	}
	for pid := 1; pid <= 4; pid++ {
		p.write(pid, "x", fmt.Sprint("TEAM=", pid))
	}
	require.Equal(t, "team=1,request=/1", of(1, "/1"))
	require.Equal(t, "team=2,request=/2", of(2, "/2"))
	require.Equal(t, "team=other,request=other", of(3, "/3"))
	now = now.Add(forget / 2)
	require.Equal(t, "team=1,request=/1", of(1, "/1"))
	require.Equal(t, "team=other,request=other", of(4, "/4"))
	now = now.Add(forget / 2) // 2 and 3 are gone
	require.Equal(t, "team=other,request=/4", of(4, "/4"), "a process keeps its own values; those of 2 are free")
	require.Equal(t, "team=1,request=/1", of(1, "/1"))
	p.write(5, "x", "TEAM=5")
	require.Equal(t, "team=5,request=other", of(5, "/5"))
	require.Equal(t, map[string]uint64{"team": 2, "request": 3}, s.Others())
}

// Counters keep a series for each value of a process until it ends: a route with an id in it must not make new ones for days.
func TestAProcessHasNoMoreValuesOfRowsThanALabel(t *testing.T) {
	p := proc{t, t.TempDir()}
	p.write(1, "x")
	now := time.Unix(0, 0)
	s := New(Config{ProcFS: p.dir, Values: 10, Rules: parse(t, `request=span:route,model=frame:^load (.*)`), Now: func() time.Time { return now }})
	of := func(process, n uint64) string {
		return s.OfRow(process, 1, Row{
			Span: n, Attribute: func(string) string { return fmt.Sprint("/", n) },
			Stack: n, Frames: func() []string { return []string{fmt.Sprint("load ", n)} },
		})
	}
	got := map[string]bool{}
	for n := range uint64(24 * 60) {
		got[of(7, n+1)] = true
		now = now.Add(time.Minute)
	}
	require.Len(t, got, 8+1, "three quarters are a container's")
	require.True(t, got["request=other,model=other"])
	now = now.Add(2 * forget)
	require.Equal(t, "request=/5000,model=5000", of(8, 5000), "the values of a process that is gone are free")
	require.Len(t, s.rows, 1)
}

func TestLabelsOfSpansAreAskedOnceAndBounded(t *testing.T) {
	p := proc{t, t.TempDir()}
	p.write(1, "x", "TEAM=a")
	now := time.Unix(0, 0)
	s := New(Config{ProcFS: p.dir, Values: 2, Rules: parse(t, "team=env:TEAM,request=span:http.route"), Now: func() time.Time { return now }})
	require.Equal(t, []string{"http.route"}, parse(t, "team=env:TEAM,request=span:http.route").OfSpans())
	asked := 0
	of := func(span uint64, route string) string {
		return s.OfRow(7, 1, Row{Span: span, Attribute: func(name string) string {
			require.Equal(t, "http.route", name)
			asked++
			return route
		}})
	}
	require.Equal(t, "team=a,request=", s.Of(7, 1))
	require.Equal(t, "team=a,request=", of(0, "never asked"))
	for range 3 {
		require.Equal(t, "team=a,request=/chat", of(1, "/chat"))
		require.Equal(t, "team=a,request=/sum_mary", of(2, "/sum\nmary"))
		require.Equal(t, "team=a,request=", of(3, ""))
		require.Equal(t, "team=a,request=other", of(4, "/third"))
		require.Equal(t, "team=a,request=other", of(5, "/fourth"))
	}
	require.Equal(t, 5, asked)
	require.Equal(t, map[string]uint64{"request": 2}, s.Others())
	now = now.Add(2 * forgetRows)
	of(6, "/chat")
	require.Len(t, s.rows, 1, "spans without rows are forgotten")
}

func TestLabelsOfFramesAreOfTheRow(t *testing.T) {
	p := proc{t, t.TempDir()}
	p.write(1, "x", "TEAM=a")
	rules := parse(t, `team=env:TEAM,model=frame:^TritonPythonModel\.\w+ \(/models/([^/]+)/`)
	require.True(t, rules.HasFrames())
	require.False(t, parse(t, "team=env:TEAM").HasFrames())
	s := New(Config{ProcFS: p.dir, Values: 2, Rules: rules})
	named := 0
	of := func(stack uint64, frames ...string) string {
		return s.OfRow(7, 1, Row{Stack: stack, Frames: func() []string {
			named++
			return frames
		}})
	}
	for range 3 {
		require.Equal(t, "team=a,model=resnet", of(1, "main (/stub.py)",
			"TritonPythonModel.execute (/models/resnet/1/model.py)", "TritonPythonModel.execute (/models/inner/1/model.py)"))
		require.Equal(t, "team=a,model=bert", of(2, "TritonPythonModel.initialize (/models/bert/2/model.py)"))
		require.Equal(t, "team=a,model=", of(3, "main (/stub.py)"))
		require.Equal(t, "team=a,model=other", of(4, "TritonPythonModel.execute (/models/third/1/model.py)"))
	}
	require.Equal(t, 4, named)
	require.Equal(t, map[string]uint64{"model": 1}, s.Others())
	require.Equal(t, "team=a,model=", s.Of(7, 1))
	_, err := Parse("model=frame:(")
	require.ErrorContains(t, err, "label model: error parsing regexp")
}

// A container whose processes all have other values leaves room to another one's.
func TestATenantLeavesValuesToOthers(t *testing.T) {
	p := proc{t, t.TempDir()}
	add := func(pid int, tenant, team string) {
		p.write(pid, "x", "TEAM="+team)
		require.NoError(t, os.WriteFile(filepath.Join(p.dir, fmt.Sprint(pid), "cgroup"), []byte("0::/"+tenant+"\n"), 0o600))
	}
	s := New(Config{ProcFS: p.dir, Values: 20, Rules: parse(t, "team=env:TEAM")})
	for n := range 100 {
		add(1000+n, "hostile", fmt.Sprint("bomb", n))
		want := fmt.Sprint("team=bomb", n)
		if n >= 15 {
			want = "team=" + Other
		}
		require.Equal(t, want, s.Of(uint64(1000+n), uint32(1000+n)))
	}
	for n := range 5 {
		add(10+n, "honest", fmt.Sprint("team", n))
		require.Equal(t, fmt.Sprint("team=team", n), s.Of(uint64(10+n), uint32(10+n)))
	}
	add(20, "third", "late")
	require.Equal(t, "team="+Other, s.Of(20, 20))
	require.Equal(t, map[string]uint64{"team": 86}, s.Others())
}

func TestValuesOfHostileProcessesAreClean(t *testing.T) {
	p := proc{t, t.TempDir()}
	p.write(1, "x", "TEAM=\x1b[31mred\xff\n<b>"+strings.Repeat("é", 100), "JOB="+strings.Repeat("x", 3*memory.MaxBytes))
	s := New(Config{ProcFS: p.dir, Values: 3, Rules: parse(t, "team=env:TEAM")})
	pairs := Decode(s.Of(1, 1))
	require.Equal(t, "team", pairs[0][0])
	require.LessOrEqual(t, len(pairs[0][1]), maxLength)
	require.True(t, strings.HasPrefix(pairs[0][1], "_[31mred__<b>é"), pairs[0][1])
}

func TestWhatIsNoRuleIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"torch":                                "want NAME=env:VARIABLE, NAME=title:REGEXP, NAME=frame:REGEXP, NAME=span:ATTRIBUTE, or one of ray, slurm, vllm",
		"a=env:":                               "want NAME=env:VARIABLE",
		"A=env:X":                              "lower-case",
		"pod=env:X":                            "have a label of that name already",
		"a=file:x":                             `want env:, title:, frame: or span:, not "file:"`,
		"a=title:(":                            "missing closing )",
		"a=env:X,a=env:Y":                      "appears twice",
		"ray,ray":                              "appears twice",
		strings.Repeat("a=env:X,", maxRules+1): "at most 16",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
	}
	require.Empty(t, parse(t, ""))
}

// What is of a whole process must not change its series with the row that is read first or last.
func TestLabelsOfAProcessAreThoseThatItsRowsHaveInCommon(t *testing.T) {
	rows := []string{"team=a,request=/chat", "team=a,request=/summary", "team=a,request=/chat", "team=a,request=", ""}
	for range rows {
		rows = append(rows[1:], rows[0])
		var c Common
		for _, row := range rows {
			c.Add(row)
		}
		require.Equal(t, "team=a,request=", c.Add(rows[0]), rows)
	}
	var c Common
	require.Equal(t, "", c.Add(""))
	require.Equal(t, `job="1,2"`, c.Add(`job="1,2"`), "another gadget of the run has labels")
	require.Equal(t, `job="1,2",team=a`, c.Add("team=a"))
	require.Equal(t, "job=,team=a", c.Add(`job=3`))
}

func FuzzDecodeIsTheInverse(f *testing.F) {
	f.Add("a", "b,c", `"d"`)
	f.Add("", "\x00", "=,\"\\")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		want := [][2]string{{"x", clean(a)}, {"y", clean(b)}, {"z", clean(c)}}
		require.Equal(t, want, Decode(Encode(want)))
		seen := map[string]bool{}
		for _, l := range Decode(a + "=" + b) {
			require.Regexp(t, labelName, l[0])
			require.False(t, seen[l[0]], "%q twice", l[0])
			require.Equal(t, clean(l[1]), l[1])
			seen[l[0]] = true
		}
	})
}

// Labels of a daemon that is none have neither names nor values that a backend refuses.
func TestLabelsOfOtherMachinesAreChecked(t *testing.T) {
	require.Equal(t, [][2]string{{"x", "1"}}, Decode("x=1,\xff=2"))
	require.Equal(t, [][2]string{{"x", "1"}}, Decode("x=1,x=2"), "twice")
	require.Equal(t, [][2]string{{"x", "1"}}, Decode("x=1,pod=other"), "a label that rows have")
	require.Equal(t, [][2]string{{"x", "_[31m"}}, Decode("x=\x1b[31m"))
}
