package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/tools/monitoring"
	"clustermaster/tools/simminion"
)

const (
	boardFile   = "CLUSTERMASTER_DASHBOARD_FILE"
	boardStep   = 5 * time.Second
	boardFleet  = 120 // simulated minions
	boardScene  = "backup_dir: DIR/backups\nbackup_passphrase_file: DIR/phrase\nreactor: [{board/*: [DIR/react.sls]}]\nschedule:\n  tick: {function: test.arg, seconds: 5}\n"
	boardPillar = "{% set x = 1 %}\na: {{ x }}\nid: {{ grains.id }}\n"
	boardStates = "{% set x = 1 %}\nfine: {test.succeed_without_changes: []}\nchanged: {test.succeed_with_changes: []}\n"
)

// TestDashboardPicture shows the whole dashboard something: a real Prometheus watches three masters
// with minions at work, of which the leader is killed and comes back. All panels have data, and the
// alert about the lost master fires. With CLUSTERMASTER_DASHBOARD_FILE the answers are written to
// that file, for `make dashboard-picture`.
func TestDashboardPicture(t *testing.T) {
	long(t)
	program := PrometheusProgram(t)
	HAProxyProgram(t)
	Venvs(t)
	dir := Folder(t)
	c := NewCluster(t, ClusterOptions{Extra: strings.ReplaceAll(boardScene, "DIR", dir)})
	writeFiles(t, dir, map[string]string{"phrase": "correct horse battery\n",
		"react.sls": "react:\n  runner.test.arg: [{args: {n: '{{ data.n }}'}}]\n"})
	for _, m := range c.Masters {
		writeFiles(t, m.Dir, map[string]string{"pillar/top.sls": "base: {'*': [p]}\n",
			"pillar/p.sls": boardPillar, "srv/good.sls": boardStates,
			"srv/bad.sls": boardStates + "bad: {test.fail_without_changes: []}\n"})
	}
	var targets []string // by the masters' ids, as a site names them
	for _, m := range c.Masters {
		targets = append(targets, fmt.Sprintf("{targets: ['%s:%d'], labels: {instance: %s}}", m.Addr,
			MetricsPort, m.ID))
	}
	p := startPrometheus(t, c, program, fmt.Sprintf("global: {scrape_interval: %s, "+
		"evaluation_interval: %[1]s}\nrule_files: [%s]\nscrape_configs: "+
		"[{job_name: clustermaster, static_configs: [%s]}]\n", boardStep,
		filepath.Join(Root(t), "tools", "monitoring", "alerts.yml"), strings.Join(targets, ", ")))
	c.Start(t)
	p.is(t, "sum(up)", func(v float64) bool { return v == 3 })
	r := monitoring.Recording{From: time.Now().Unix(), Step: int64(boardStep / time.Second)}

	c.AddMinions(t, "real", quick, "3006.28", "3008.3")
	startFleet(t, c, "sim", boardFleet)
	w := &workload{c: c}
	accept := func() { c.Masters[0].Key(t, "-A", "-y") }
	w.during(t, time.Minute, accept)
	Eventually(t, time.Minute, "all minions are accepted", func() error {
		accept()
		keys, err := c.Masters[0].Keys(t)
		if err == nil && len(keys["minions"]) != boardFleet+len(c.Minions) {
			err = fmt.Errorf("%d are", len(keys["minions"]))
		}
		return err
	})
	w.during(t, 2*time.Minute, nil)
	lost := c.Leader(t, c.Masters[0])
	utc := func() string { return time.Now().UTC().Format("15:04:05 UTC") }
	killed := utc()
	lost.Kill(t)
	w.during(t, 160*time.Second, nil)
	started := utc()
	lost.Run(t)
	startFleet(t, c, "new", 2) // their keys wait
	w.during(t, 2*time.Minute, nil)
	p.is(t, "sum(clustermaster_cluster_ready)", func(v float64) bool { return v == 3 })
	r.To = time.Now().Unix()
	p.record(t, &r)
	r.Notes = []string{fmt.Sprintf("Three masters behind HAProxy. %d simulated minions and %d real "+
		"ones get test.ping every 2 s, the real ones also states, of which some fail.", boardFleet,
		len(c.Minions)), fmt.Sprintf("%s: %s, the leader, is killed. %s: it starts again.", killed,
		lost.ID, started)}
	if path := os.Getenv(boardFile); path != "" {
		b, err := json.Marshal(r)
		if err == nil {
			err = os.WriteFile(path, b, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// startFleet runs simulated minions behind the balancer, four more each second.
func startFleet(t *testing.T, c *Cluster, prefix string, n int) {
	t.Helper()
	key, err := simminion.NewKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := simminion.NewFleet(simminion.Config{AcceptanceWait: 3 * time.Second,
		Master: fmt.Sprintf("%s:%d", c.Base.Balancer(), RequestPort)}, prefix, n,
		[]*simminion.Key{key}, 4)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = fleet.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// workload orders jobs at all masters that run, in turn.
type workload struct {
	c *Cluster
	n int
}

// during works for a while. Every tenth second it also does what else is to be done.
func (w *workload) during(t *testing.T, d time.Duration, also func()) {
	t.Helper()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		w.n++
		running := w.c.Running()
		m := running[w.n%len(running)]
		m.Salt(t, "--async", "*", "test.ping")
		switch w.n % 5 {
		case 0:
			states := "good"
			if w.n%3 == 0 {
				states = "bad"
			}
			m.Salt(t, "--async", "real-*", "state.apply", states)
		case 1, 3:
			m.Runner(t, "event.send", "board/tick", fmt.Sprintf("{n: %d}", w.n))
		case 2, 4:
			m.Runner(t, "pillar.show_pillar", fmt.Sprintf("sim%d", w.n%boardFleet+1))
		}
		if also != nil && w.n%5 == 0 {
			also()
		}
	}
}

// record asks for everything that the dashboard shows. Without an answer the test fails.
func (p prometheus) record(t *testing.T, r *monitoring.Recording) {
	t.Helper()
	board, err := monitoring.ParseBoard(monitoring.Dashboard)
	if err != nil {
		t.Fatal(err)
	}
	r.Panels = map[int][][]monitoring.Series{}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			expr := monitoring.Query(target.Expr, boardStep)
			answer := p.answer(t, expr, target.Instant, *r)
			if len(answer) == 0 {
				t.Errorf("panel %s: no data for %s", panel.Title, expr)
			}
			r.Panels[panel.ID] = append(r.Panels[panel.ID], answer)
		}
	}
	for _, a := range board.Annotations.List {
		r.Alerts = append(r.Alerts, p.answer(t, a.Expr, false, *r)...)
	}
	if !slices.ContainsFunc(r.Alerts, func(a monitoring.Series) bool {
		return a.Metric["alertname"] == "ClustermasterDown"
	}) {
		t.Errorf("no alert about the lost master: %v", r.Alerts)
	}
}

// answer is that to a query over the time of a recording, or at its end.
func (p prometheus) answer(t *testing.T, expr string, atEnd bool,
	r monitoring.Recording) (list []monitoring.Series) {
	t.Helper()
	text := func(n int64) []string { return []string{strconv.FormatInt(n, 10)} }
	path, query := "/api/v1/query_range", url.Values{"query": {expr}, "start": text(r.From),
		"end": text(r.To), "step": text(r.Step)}
	if atEnd {
		path, query = "/api/v1/query", url.Values{"query": {expr}, "time": text(r.To)}
	}
	var data struct {
		Result []struct {
			monitoring.Series
			Value [2]any
		}
	}
	if err := p.ask(path, query, &data); err != nil {
		t.Fatal(err)
	}
	for _, s := range data.Result {
		if atEnd {
			s.Values = [][2]any{s.Value}
		}
		list = append(list, s.Series)
	}
	return list
}
