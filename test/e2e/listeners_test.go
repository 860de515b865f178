package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listenersExtra are options of a master whose bus has listeners. Salt's own masters don't know the
// second one.
const listenersExtra = "auto_accept: True\nenable_clear_commands: True\n"

// listenedMinion are options of minions that report and have a schedule.
const listenedMinion = quick + `beacons: {status: [{interval: 1}]}
schedule: {nightly: {function: test.ping, hours: 100, run_on_start: False}}
`

// listenedStates are the states of the master.
var listenedStates = map[string]string{
	"top.sls":   "base: {'*': [works, fails]}\n",
	"works.sls": "changes: {test.succeed_with_changes: []}\n",
	"fails.sls": "breaks: {test.fail_without_changes: []}\n",
	"orch.sls":  "step: {salt.function: [name: test.ping, tgt: '*']}\n",
}

// TestListeners: programs that count what a master does from its event bus get the same from one of
// our masters, whichever master of the cluster had the order, as from Salt's own; also after the
// master was stopped, and killed, and started again. They are Salt's library of each release, and
// msgpack alone on the socket. Then prometheus-salt-exporter, a program of other people, exports
// the same states of the minions.
func TestListeners(t *testing.T) {
	long(t)
	HAProxyProgram(t)
	exporter := filepath.Join(Venvs(t), "exporter", "bin", "prometheus_salt_exporter")
	if _, err := os.Stat(exporter); err != nil {
		t.Skip("needs prometheus-salt-exporter in CLUSTERMASTER_SALT_VENVS; run make test-long")
	}
	exported := map[string]string{}
	for _, k := range []struct {
		name    string
		heardBy []string // releases of Salt's library; that of 3006 hears nothing from Salt's 3008
		options ClusterOptions
	}{
		{"Salt's master", Releases[1:], ClusterOptions{Masters: 1, Plain: true, Programs: Theirs(t, Releases[2]),
			Balancer: BalancerOptions{File: "lb/haproxy-salt.cfg"}, Extra: listenersExtra + fewWorkers}},
		{"our masters", Releases, ClusterOptions{Extra: listenersExtra}},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := NewCluster(t, k.options)
			for _, m := range c.Masters {
				for name, text := range listenedStates {
					if err := os.WriteFile(filepath.Join(m.Dir, "srv", name), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.Start(t)
			minions := c.AddMinions(t, "heard", listenedMinion, Releases[0], Releases[2])
			b := &heardBus{c: c, first: minions[0].ID}
			b.answers(t)
			for _, release := range k.heardBy {
				b.listen(t, "library", release)
			}
			b.listen(t, "socket", Releases[2])
			b.counted(t, 1)
			m := c.Masters[0]
			m.Stop(t, 30*time.Second)
			b.again(t)
			b.counted(t, 2)
			m.Kill(t)
			b.again(t)
			b.counted(t, 3)
			for _, l := range b.listeners {
				l.End()
			}
			exported[k.name] = b.exports(t, exporter)
		})
	}
	if a, b := exported["Salt's master"], exported["our masters"]; a != b {
		t.Errorf("prometheus-salt-exporter exports\n%sand of Salt's master\n%s", b, a)
	}
}

// heardBus is the masters and the listeners on the first one's bus.
type heardBus struct {
	c         *Cluster
	first     string // a minion
	listeners []*listener
	probes    int
}

// listener is a process that serves metrics.
type listener struct {
	Process
	url string
}

// listen starts a listener.
func (b *heardBus) listen(t *testing.T, how, release string) {
	t.Helper()
	m, port := b.c.Masters[0], 9175+len(b.listeners)
	l := &listener{Process{Name: how + " " + release,
		Output: filepath.Join(b.c.Dir, fmt.Sprintf("listener%d.log", port))},
		fmt.Sprintf("http://%s:%d/metrics", m.Addr, port)}
	ShowOnFailure(t, l.Output)
	l.Start(t, filepath.Join(Venvs(t), "salt-"+release, "bin", "python3"),
		filepath.Join("testdata", "listener.py"), m.ConfDir, how, m.Addr, strconv.Itoa(port))
	b.listeners = append(b.listeners, l)
	b.hears(t, l)
}

// scrape is what a listener serves: value by name and labels.
func (l *listener) scrape() (map[string]string, error) {
	if !l.Running() {
		return nil, errors.New(l.Name + " has ended")
	}
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(l.url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for text := range strings.Lines(string(body)) {
		text = strings.TrimSpace(text)
		if i := strings.LastIndexByte(text, ' '); i > 0 && text[0] != '#' {
			values[text[:i]] = text[i+1:]
		}
	}
	return values, nil
}

// hears sends events until the listener has counted one.
func (b *heardBus) hears(t *testing.T, l *listener) {
	t.Helper()
	Eventually(t, 60*time.Second, l.Name+" hears the bus", func() error {
		b.probes++
		tag := fmt.Sprintf("probe/%d", b.probes)
		if r := b.c.Masters[0].Runner(t, "event.send", tag); r.Code != 0 {
			return fmt.Errorf("%v", r)
		}
		for range 20 {
			values, err := l.scrape()
			if err != nil {
				return err
			}
			if values[`probes_total{tag="`+tag+`"}`] == "1" {
				return nil
			}
			<-time.After(50 * time.Millisecond)
		}
		return errors.New(tag + " was not heard")
	})
}

// answers waits until both minions answer every master.
func (b *heardBus) answers(t *testing.T) {
	t.Helper()
	for _, m := range b.c.Masters {
		Eventually(t, 90*time.Second, "minions answer "+m.ID, func() error {
			r := m.Salt(t, "--out=txt", "-t", "5", "*", "test.version")
			for _, id := range b.c.IDs() {
				if !strings.Contains(r.Stdout, id+": 300") {
					return fmt.Errorf("%v", r)
				}
			}
			return nil
		})
	}
}

// again starts the first master anew and waits for minions and listeners.
func (b *heardBus) again(t *testing.T) {
	t.Helper()
	m := b.c.Masters[0]
	m.Run(t)
	b.c.WaitReady(t, 60*time.Second, m)
	b.answers(t)
	for _, l := range b.listeners {
		b.hears(t, l)
	}
}

// work is what the masters are ordered to do, each in turn. ONE is a minion.
var work = []struct{ command, words string }{
	{"salt", "* test.ping"},
	{"salt", "ONE test.ping"},
	{"salt", "nobody* test.ping"},
	{"salt", "* state.apply works"},
	{"salt", "* state.apply fails"},
	{"salt", "* state.apply works test=True"},
	{"salt", "* state.apply"},
	{"salt", "ONE state.single test.nop name=x"},
	{"salt", "ONE test.nosuch"},
	{"salt", "* schedule.run_job nightly"},
	{"salt-run", "test.arg x"},
	{"salt-run", "state.orchestrate orch"},
}

// worked is what a listener has after a round of work.
const worked = `salt_expected_responses_total{function="runner.state.orchestrate",state=""} 0
salt_expected_responses_total{function="runner.test.arg",state=""} 0
salt_expected_responses_total{function="schedule.run_job",state=""} 2
salt_expected_responses_total{function="state.apply",state="fails"} 2
salt_expected_responses_total{function="state.apply",state="highstate"} 2
salt_expected_responses_total{function="state.apply",state="works"} 4
salt_expected_responses_total{function="state.single",state="test.nop"} 1
salt_expected_responses_total{function="test.nosuch",state=""} 1
salt_expected_responses_total{function="test.ping",state=""} 5
salt_function_responses_total{function="runner.state.orchestrate",state="",success="True"} 1
salt_function_responses_total{function="runner.test.arg",state="",success="True"} 1
salt_function_responses_total{function="schedule.run_job",state="",success="True"} 2
salt_function_responses_total{function="state.apply",state="fails",success="False"} 2
salt_function_responses_total{function="state.apply",state="highstate",success="False"} 2
salt_function_responses_total{function="state.apply",state="works",success="True"} 4
salt_function_responses_total{function="state.single",state="test.nop",success="True"} 1
salt_function_responses_total{function="test.nosuch",state="",success="False"} 1
salt_function_responses_total{function="test.ping",state="",success="True"} 5
salt_function_status{minion="heard-3006-28",function="schedule.run_job",state=""} 1
salt_function_status{minion="heard-3006-28",function="state.apply",state="fails"} 0
salt_function_status{minion="heard-3006-28",function="state.apply",state="highstate"} 0
salt_function_status{minion="heard-3006-28",function="state.apply",state="works"} 1
salt_function_status{minion="heard-3006-28",function="state.single",state="test.nop"} 1
salt_function_status{minion="heard-3006-28",function="test.nosuch",state=""} 0
salt_function_status{minion="heard-3006-28",function="test.ping",state=""} 1
salt_function_status{minion="heard-3008-3",function="schedule.run_job",state=""} 1
salt_function_status{minion="heard-3008-3",function="state.apply",state="fails"} 0
salt_function_status{minion="heard-3008-3",function="state.apply",state="highstate"} 0
salt_function_status{minion="heard-3008-3",function="state.apply",state="works"} 1
salt_function_status{minion="heard-3008-3",function="test.ping",state=""} 1
salt_function_status{minion="master",function="runner.state.orchestrate",state=""} 1
salt_function_status{minion="master",function="runner.test.arg",state=""} 1
salt_health_minions_total 2
salt_new_job_total{function="runner.state.orchestrate",state=""} 1
salt_new_job_total{function="runner.test.arg",state=""} 1
salt_new_job_total{function="schedule.run_job",state=""} 1
salt_new_job_total{function="state.apply",state="fails"} 1
salt_new_job_total{function="state.apply",state="highstate"} 1
salt_new_job_total{function="state.apply",state="works"} 2
salt_new_job_total{function="state.single",state="test.nop"} 1
salt_new_job_total{function="test.nosuch",state=""} 1
salt_new_job_total{function="test.ping",state=""} 3
salt_responses_total{minion="heard-3006-28",success="False"} 3
salt_responses_total{minion="heard-3006-28",success="True"} 8
salt_responses_total{minion="heard-3008-3",success="False"} 2
salt_responses_total{minion="heard-3008-3",success="True"} 6
salt_responses_total{minion="master",success="True"} 2
salt_scheduled_job_return_total{function="test.ping",state="",success="True"} 2
`

// counted runs a round of work and compares what every listener has counted in that many rounds.
func (b *heardBus) counted(t *testing.T, rounds int) {
	t.Helper()
	for i, w := range work {
		m := b.c.Masters[i%len(b.c.Masters)]
		words := strings.Fields(strings.ReplaceAll(w.words, "ONE", b.first))
		if w.command == "salt" {
			m.Salt(t, words...)
		} else {
			m.Runner(t, words...)
		}
	}
	for _, l := range b.listeners {
		Eventually(t, 20*time.Second, l.Name+" has counted", func() error {
			values, err := l.scrape()
			if err != nil {
				return err
			}
			for _, id := range b.c.IDs() {
				beat, _ := strconv.ParseInt(values[`salt_health_last_heartbeat{minion="`+id+`"}`], 10, 64)
				if time.Since(time.Unix(beat, 0)) > 10*time.Second {
					return fmt.Errorf("the last beacon of %s was counted at %d", id, beat)
				}
			}
			maps.DeleteFunc(values, func(k, _ string) bool {
				return strings.HasPrefix(k, "probes_total") ||
					strings.HasPrefix(k, "salt_health_last_heartbeat")
			})
			for k, v := range values {
				name, _, _ := strings.Cut(k, "{")
				if n, err := strconv.Atoi(v); err == nil && n%rounds == 0 && strings.HasSuffix(name,
					"_total") && name != "salt_health_minions_total" {
					values[k] = strconv.Itoa(n / rounds)
				}
			}
			if got := told(values); got != worked {
				return fmt.Errorf("after %d rounds, per round\n%s", rounds, got)
			}
			return nil
		})
	}
}

// told is what was counted, as lines in order.
func told(values map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, k+" "+values[k]+"\n")
	}
	return strings.Join(lines, "")
}

// exports runs prometheus-salt-exporter beside the first master, also while that is stopped, and
// returns what it exports.
func (b *heardBus) exports(t *testing.T, program string) string {
	t.Helper()
	m := b.c.Masters[0]
	l := &listener{Process{Name: "prometheus-salt-exporter", Output: filepath.Join(b.c.Dir, "exporter.log")},
		fmt.Sprintf("http://%s:9174/metrics", m.Addr)}
	ShowOnFailure(t, l.Output)
	start := func() {
		l.Start(t, "/usr/bin/env", "SALT_MASTER_CONFIG="+filepath.Join(m.ConfDir, "master"), program,
			"--listen-addr", m.Addr, "--listen-port", "9174", "--highstate-interval", "1",
			"--wait-on-error-interval", "1", "--batch-wait", "0")
	}
	start()
	var exported map[string]string
	since := time.Now()
	runs := func() error {
		values, err := l.scrape()
		if err != nil {
			return err
		}
		at, _ := strconv.ParseFloat(values["saltstack_last_highstate_total"], 64)
		if at <= float64(since.Unix()) {
			return fmt.Errorf("the last run was at %v", at)
		}
		for _, id := range b.c.IDs() {
			if values[`saltstack_states_total{minion="`+id+`"}`] == "" {
				return fmt.Errorf("no states of %s: %v", id, values)
			}
		}
		exported = values
		return nil
	}
	Eventually(t, 60*time.Second, "the exporter has run states", runs)
	first := exported
	m.Stop(t, 30*time.Second)
	m.Run(t)
	b.c.WaitReady(t, 60*time.Second, m)
	b.answers(t)
	if !l.Running() { // it ends itself for some of the library's errors
		start()
	}
	since = time.Now()
	Eventually(t, 60*time.Second, "the exporter has run states after the restart", runs)
	for _, values := range []map[string]string{first, exported} {
		maps.DeleteFunc(values, func(k, _ string) bool { return !exportedOnes.MatchString(k) })
	}
	if told(first) != told(exported) {
		t.Errorf("before the restart\n%safter it\n%s", told(first), told(exported))
	}
	return told(exported)
}

var exportedOnes = regexp.MustCompile(`^saltstack_(states|nonhigh|error|highstate_error)`)
