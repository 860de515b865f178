package commands

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// applied are the state files that orchestrations have minions apply, and the files they need.
var applied = map[string]string{
	"apply/changes.sls": "changed:\n  test.succeed_with_changes: []\n",
	"apply/nothing.sls": "same:\n  test.succeed_without_changes: []\n",
	"apply/fails.sls":   "wrong:\n  test.fail_without_changes: []\n",
	"apply/broken.sls":  "one: {test.nop: []}\none {\n",
	"apply/pillar.sls":  "told:\n  test.show_notification:\n    - text: {{ pillar['word'] }}\n",
	"apply/top.sls":     "base:\n  'web-*': [apply.changes]\n",
	"apply/script.sh":   "#!/bin/sh\necho \"args $*: {{ word }}\"\necho err >&2\n",
}

// orchestration is an entry of testdata/orchestrations.yaml.
type orchestration struct {
	name, file, sls string
	args            []string
	unlike          []string // ids of states that differ on purpose
	// its commands need the grain shell; Salt's runners take a second for grains
	grains    bool
	tag, data string // an event fired until the orchestration ends
}

// String is everything that an answer depends on.
func (o orchestration) String() string {
	text := fmt.Sprintf("%s %q", o.name, o.args)
	if o.grains {
		text += " grains"
	}
	if o.tag != "" {
		text += fmt.Sprintf(" fires %s %s", o.tag, o.data)
	}
	return text + "\n" + o.sls
}

func orchestrations(t *testing.T) []orchestration {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "orchestrations.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := yaml11.Load(b)
	if err != nil {
		t.Fatal(err)
	}
	var out []orchestration
	for _, c := range v.([]any) {
		m := c.(value.Map)
		words := func(key string) (list []string) {
			v, _ := m.Get(key)
			given, _ := v.([]any)
			for _, w := range given {
				list = append(list, w.(string))
			}
			return list
		}
		grains, _ := m.Get("grains")
		fires, _ := m.Get("fires")
		event, _ := fires.(value.Map)
		out = append(out, orchestration{
			name: m.String("name"), file: strings.ReplaceAll(strings.ReplaceAll(m.String("name"),
				" ", "_"), "'", ""), sls: m.String("sls"), args: words("args"),
			unlike: words("unlike"),
			grains: grains == true, tag: event.String("tag"), data: event.String("data"),
		})
	}
	return out
}

// TestOrchestrations runs orchestrations on Salt's master and on ours, whose states that are not
// native run in a Python with Salt.
func TestOrchestrations(t *testing.T) {
	t.Parallel()
	python := filepath.Join(e2e.Venvs(t), "salt-"+reference, "bin", "python3")
	p := startPairWith(t, func(s *side) {
		if s.kind != "salt" {
			s.Configure(t, s.Config(t)+"python_host: "+python+"\n")
		}
	})
	for _, c := range orchestrationScenes() {
		t.Run(c.name, func(t *testing.T) { p.play(t, c) })
	}
}

// orchestrationScenes run the same orchestrations on both masters, and compare their returns and
// the events they fire.
func orchestrationScenes() []scene {
	return []scene{{name: "50_orchestrations", alone: true, do: func(t *testing.T, p *pair) {
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/x" {
				w.WriteHeader(http.StatusNotFound)
			}
			fmt.Fprint(w, "hello")
		}))
		defer site.Close()
		list := orchestrations(t)
		for _, s := range p.sides() {
			files := map[string]string{"top.sls": applied["apply/top.sls"]}
			for name, text := range applied {
				files[name] = text
			}
			for _, o := range list {
				files["orch/"+o.file+".sls"] = strings.ReplaceAll(o.sls, "URL", site.URL)
			}
			for name, text := range files {
				path := filepath.Join(s.Dir, "srv", name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
					os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Cleanup(func() { // other scenes have their own files
			for _, s := range p.sides() {
				for _, name := range []string{"orch", "apply"} {
					if err := os.RemoveAll(filepath.Join(s.Dir, "srv", name)); err != nil {
						t.Error(err)
					}
				}
				writeTop(t, s.Dir)
			}
		})
		answers := answers.Open[outcome](t, answersOf("orchestrations"), reference, settings(), *update)
		listeners := map[*side]*listener{}
		for _, s := range p.sides() {
			listeners[s] = s.listen(t)
		}
		for i, o := range list {
			t.Run(o.name, func(t *testing.T) {
				jid := fmt.Sprintf("$JUST1%05d", i)
				var salts func() outcome
				if p.theirs != nil {
					salts = func() outcome {
						return p.theirs.orchestrate(t, o, jid, site.URL,
							listeners[p.theirs])
					}
				}
				var got outcome
				var wg sync.WaitGroup
				wg.Go(func() { got = p.ours.orchestrate(t, o, jid, site.URL, listeners[p.ours]) })
				want := answers.Salt(t, answers.Turn(), o.String(), salts)
				wg.Wait()
				compareOutcomes(t, o, want, got)
			})
		}
	}}}
}

// writeTop writes the top file of all other scenes.
func writeTop(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "srv", "top.sls"), []byte(rootFiles["srv/top.sls"]),
		0o644); err != nil {
		t.Fatal(err)
	}
}

// outcome is what an orchestration returned, masked: each state's return by its tag in the order of
// the document, the rest of the document, and the events, sorted.
type outcome struct {
	Tags   []string          `json:"tags"`
	States map[string]string `json:"states"`
	Rest   string            `json:"rest"`
	Events []string          `json:"events"`
}

func compareOutcomes(t *testing.T, o orchestration, want, got outcome) {
	t.Helper()
	if !slices.Equal(want.Tags, got.Tags) || want.Rest != got.Rest && len(o.unlike) == 0 {
		t.Errorf("\nSalt %q %s\nours %q %s", want.Tags, want.Rest, got.Tags, got.Rest)
	}
	for _, tag := range want.Tags {
		id := strings.Split(tag, "_|-")[1]
		differs := slices.Contains(o.unlike, id)
		switch same := want.States[tag] == got.States[tag]; {
		case !same && !differs:
			t.Errorf("%s\nSalt %s\nours %s", tag, want.States[tag], got.States[tag])
		case same && differs:
			t.Errorf("%s is said to differ and doesn't: %s", tag, got.States[tag])
		case differs && !strings.Contains(got.States[tag], `"result": true`) &&
			o.name != "by ssh" && o.name != "orchestrations beside each other":
			t.Errorf("%s is to be true: %s", tag, got.States[tag])
		}
	}
	if len(o.unlike) == 0 && !slices.Equal(want.Events, got.Events) {
		t.Errorf("events\n--- Salt\n%s\n--- ours\n%s", strings.Join(want.Events, "\n"),
			strings.Join(got.Events, "\n"))
	}
}

// listener is the event stream of a master, written to a file.
type listener struct {
	e2e.Process
	read int64 // of Output
}

// listen starts salt-run state.event and waits until it hears an event.
func (s *side) listen(t *testing.T) *listener {
	t.Helper()
	l := &listener{Process: e2e.Process{Name: "events of " + s.kind,
		Output: filepath.Join(s.Dir, "events")}}
	l.Start(t, s.program.Run, "-c", s.ConfDir, "--skip-grains", "state.event", "*")
	e2e.Eventually(t, 60*time.Second, "events of "+s.kind, func() error {
		s.must(t, "salt-run", "--skip-grains", "event.send", "my/start", "{a: 1}")
		b, err := os.ReadFile(l.Output)
		if err == nil && !strings.Contains(string(b), "my/start") {
			err = errors.New("nothing heard")
		}
		return err
	})
	return l
}

// until reads until an event with that tag has come.
func (l *listener) until(t *testing.T, tag string) (lines []string) {
	t.Helper()
	return l.untilLike(t, regexp.MustCompile("^"+regexp.QuoteMeta(tag)+"$"))
}

// untilLike reads until an event has come whose tag matches.
func (l *listener) untilLike(t *testing.T, tag *regexp.Regexp) (lines []string) {
	t.Helper()
	e2e.Eventually(t, 20*time.Second, tag.String(), func() error {
		f, err := os.Open(l.Output)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Seek(l.read, 0); err != nil {
			return err
		}
		lines = nil
		var n int64
		r := bufio.NewReaderSize(f, 1<<20)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return fmt.Errorf("%s has not come", tag)
			}
			n += int64(len(line))
			lines = append(lines, line)
			if is, _, _ := strings.Cut(line, "\t"); tag.MatchString(is) {
				l.read += n
				return nil
			}
		}
	})
	return lines
}

// orchestrate runs an orchestration on one side.
func (s *side) orchestrate(t *testing.T, o orchestration, jid, site string,
	events *listener) outcome {
	jid = s.fill(jid) // events have it
	args := []string{"--jid", jid, "state.orchestrate", "orch." + o.file, "--out=json"}
	if !o.grains {
		args = append([]string{"--skip-grains"}, args...)
	}
	ended := make(chan struct{})
	fired := make(chan struct{})
	go func() {
		defer close(fired)
		for tick := time.NewTicker(time.Second); o.tag != ""; {
			select {
			case <-tick.C:
				s.call(t, "salt-run", call{args: []string{"--skip-grains", "--quiet", "event.send",
					o.tag, o.data}})
			case <-ended:
				tick.Stop()
				return
			}
		}
	}()
	r := s.call(t, "salt-run", call{args: append(args, o.args...)})
	close(ended)
	<-fired
	out := outcome{States: map[string]string{}}
	mask := func(text string) string {
		text = strings.ReplaceAll(s.unnamed(text), site, "URL")
		for _, m := range orchestrationMasks {
			text = m.form.ReplaceAllString(text, m.to)
		}
		return minionLists.ReplaceAllStringFunc(text, func(list string) string {
			ids := strings.Split(list, ", ")
			slices.Sort(ids)
			return strings.Join(ids, ", ")
		})
	}
	start := strings.Index(r.stdout, "{\n")
	if start < 0 {
		t.Errorf("%s: no document\n%v", s.kind, r)
		return out
	}
	v, err := yaml11.Load([]byte(r.stdout[start:])) // JSON is YAML, and maps keep their order
	if err != nil {
		t.Errorf("%s: %v\n%v", s.kind, err, r)
		return out
	}
	doc := v.(value.Map)
	data, _ := doc.Get("data")
	for _, p := range data.(value.Map) {
		states, ok := p.Value.(value.Map)
		if !ok {
			out.Rest = mask(value.Repr(p.Value))
			continue
		}
		for _, st := range states {
			tag := mask(value.Str(st.Key))
			out.Tags = append(out.Tags, tag)
			out.States[tag] = mask(asJSON(byMinion(st.Value)))
		}
	}
	// value.Map keeps the order; the compiler's tests check the order of states
	slices.Sort(out.Tags)
	out.Rest += fmt.Sprintf(" exit %d %s", r.code, mask(asJSON(doc.Without("data"))))
	for _, line := range events.until(t, "salt/run/"+jid+"/ret") {
		if e := eventLine(line, jid); e != "" {
			out.Events = append(out.Events, mask(e))
		}
	}
	slices.Sort(out.Events)
	return out
}

// eventLine is an event without what differs from run to run. It is "" for events that do not
// belong to an orchestration.
func eventLine(line, jid string) string {
	tag, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
	v, err := yaml11.Load([]byte(text))
	if err != nil {
		return tag + " " + err.Error()
	}
	data, _ := v.(value.Map)
	parts := strings.Split(tag, "/")
	switch {
	case tag == "salt/run/"+jid+"/ret":
		data = data.Without("return") // the document contains it
	case data.String("fun") == "test.sleep" &&
		strings.Contains(text, `"fun_args": [12]`): // of 44_jobs_active, which may still be running
		return ""
	case data.String("fun") == "saltutil.find_job", data.String("fun") == "runner.event.send",
		strings.HasPrefix(tag, "my/"):
		return ""
	case strings.HasPrefix(tag, "salt/run/"), strings.HasPrefix(tag, "salt/wheel/"):
	case strings.HasPrefix(tag, "salt/job/") && len(parts) > 3 &&
		(parts[3] == "new" || parts[3] == "ret"):
		data = data.Without("return") // of states and functions that list much
	default:
		return ""
	}
	return tag + " " + asJSON(byMinion(data.Without("_stamp", "ts")))
}

// byMinion sorts maps whose keys are minion ids, and lists of ids: they come in any order.
func byMinion(v any) any {
	switch v := v.(type) {
	case value.Map:
		out := make(value.Map, len(v))
		ids := len(v) > 0
		for i, p := range v {
			out[i] = value.Pair{Key: p.Key, Value: byMinion(p.Value)}
			ids = ids && isMinion(p.Key)
		}
		if ids {
			slices.SortFunc(out, func(a, b value.Pair) int {
				return strings.Compare(a.Key.(string),
					b.Key.(string))
			})
		}
		return out
	case []any:
		out := make([]any, len(v))
		ids := true
		for i, e := range v {
			out[i] = byMinion(e)
			ids = ids && isMinion(e)
		}
		if ids {
			slices.SortFunc(out, func(a,
				b any) int {
				return strings.Compare(a.(string), b.(string))
			})
		}
		return out
	}
	return v
}

func isMinion(v any) bool {
	id, _ := v.(string)
	return id == "web-a" || id == "web-b" || id == "ghost"
}

func asJSON(v any) string {
	text, err := value.JSON(v, value.JSONStyle{Indent: -1})
	if err != nil {
		b, _ := json.Marshal(fmt.Sprint(v, err))
		return string(b)
	}
	return text
}

var orchestrationMasks = []mask{
	{regexp.MustCompile(`\b20[0-9]{18}\b`), "JID"},
	{regexp.MustCompile(`("start_time": )"[0-9:.]+"`), `${1}"TIME"`},
	{regexp.MustCompile(`("duration": )[0-9.]+`), "${1}SPAN"},
	{regexp.MustCompile(`("pid": )[0-9]+`), "${1}PID"},
	{regexp.MustCompile(`seen in [0-9.]+ seconds`), "seen in SPAN seconds"},
	{regexp.MustCompile(`(An exception occurred in this state: )(?:[^"\\]|\\.)*`), "${1}EXCEPTION"},
	{regexp.MustCompile(`, "__pub_user": "[^"]*"`), ""},
	{regexp.MustCompile(`("fun": "wheel[^{]*"user": ")UNKNOWN`), "${1}root"},
	{regexp.MustCompile(`"[^"]+_master"`), `"MASTER"`},
}

// minionLists are ids in a text, in the order of a Python set.
var minionLists = regexp.MustCompile(`\b(?:web-[ab]|ghost)(?:, (?:web-[ab]|ghost))+\b`)
