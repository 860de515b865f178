package commands

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
)

// returning is a master with a database, and one minion.
type returning struct {
	*e2e.Master
	db     *postgres
	minion *e2e.Minion
}

// eventOptions are those of both masters.
const eventOptions = `event_return: [pgjsonb]
event_return_blacklist: ['salt/auth', 'salt/*/start', 'minion*', 'site/unwanted']
auto_accept: True
timeout: 15
`

// newReturning makes a master of a kind with a database. Neither runs yet.
func newReturning(t *testing.T, kind, options string) *returning {
	t.Helper()
	db := newPostgres(t)
	r := newReturningOf(t, kind, reference, options+db.options())
	r.db = db
	return r
}

// newReturningOf is newReturning with the returners, the minion and the reference of a release, and
// the caller's database.
func newReturningOf(t *testing.T, kind, release, options string) *returning {
	t.Helper()
	p, own := e2e.Ours(t), "python_host: "+filepath.Join(e2e.Venvs(t),
		"salt-"+release, "bin", "python3")+"\n"
	if kind == "salt" {
		p, own = e2e.Theirs(t, release), salts
	}
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true, Programs: p})
	r := &returning{Master: c.Masters[0]}
	r.Configure(t, r.Config(t)+options+own)
	r.minion = e2e.NewMinion(t, c.Dir, e2e.MinionOptions{ID: "web", Release: release,
		Master: r.Addr, Extra: minionOptions})
	return r
}

// meet starts the minion and waits for it.
func (r *returning) meet(t *testing.T) {
	t.Helper()
	r.minion.Run(t)
	r.answers(t)
}

func (r *returning) answers(t *testing.T) {
	t.Helper()
	e2e.Eventually(t, 90*time.Second, "the minion answers", func() error {
		if got := r.Salt(t, "-t", "3", "web", "test.ping"); !strings.Contains(got.Stdout, "True") {
			return errors.New(got.String())
		}
		return nil
	})
}

// send has the minion fire an event, and returns once the master has acknowledged it.
func (r *returning) send(t *testing.T, tag, data string) {
	t.Helper()
	got := r.Salt(t, "web", "event.send", tag, data)
	if !strings.Contains(got.Stdout, "True") {
		t.Fatalf("event %s: %v", tag, got)
	}
}

// sent are the numbers of the events below a tag in the database.
func (r *returning) sent(t *testing.T, tag string) (string, error) {
	t.Helper()
	out, err := r.db.ask("salt", "SELECT data->'data'->>'n' FROM salt_events WHERE tag = '"+tag+
		"' ORDER BY id")
	return strings.Join(strings.Fields(out), " "), err
}

var (
	numbers = regexp.MustCompile(`\b20\d{18}\b`)
	stamps  = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+`)
)

// eventRows fires the events to compare, and returns their rows.
func (r *returning) eventRows(t *testing.T) string {
	t.Helper()
	r.db.run(t)
	r.Run(t)
	e2e.Eventually(t, 60*time.Second, "the master", r.Ready)
	r.meet(t)
	r.send(t, "site/types", `{n: 1, float: 1.5, big: 12345678901, yes: true, none: null, `+
		`text: "äöü\t\"", list: [1, [2, {x: y}]], map: {a: {b: c}}, empty: {}}`)
	r.send(t, "site/unwanted", "{n: 1}")
	r.Salt(t, "web", "test.arg", "1", "2.5", "x", "a={b: [c]}")
	r.Salt(t, "web", "test.exception", "no")
	r.Runner(t, "test.arg", "1", "a=b")
	r.send(t, "site/end", "{n: 2}")
	e2e.Eventually(t, 60*time.Second, "the last row", func() error { // the return of site/end
		got, err := r.db.ask("salt", `SELECT count(*) FROM salt_events WHERE tag LIKE 'salt/job/%/ret/web'
			AND id > (SELECT max(id) FROM salt_events WHERE tag = 'site/end')`)
		if err == nil && strings.TrimSpace(got) != "1" {
			err = fmt.Errorf("%s rows", got)
		}
		return err
	})
	rows := r.db.query(t, "salt", `SELECT tag || ' ' || master_id || ' ' || data FROM salt_events
		WHERE id >= (SELECT min(id) FROM salt_events WHERE tag = 'site/types') AND tag NOT LIKE '%/end'
		AND (tag LIKE 'site/%' OR tag LIKE 'salt/job/%' OR tag LIKE 'salt/run/%') ORDER BY id`)
	rows = strings.NewReplacer(r.Dir, "DIR", r.Addr, "ADDR").Replace(rows)
	rows = regexp.MustCompile(`"ts": \d+`).ReplaceAllString(rows, `"ts": TS`)
	rows = stamps.ReplaceAllString(numbers.ReplaceAllString(rows, "JID"), "STAMP")
	return regexp.MustCompile(`File \\".*?line \d+`).ReplaceAllString(rows, "FILE")
}

// TestEventReturn compares the rows of event_return in a real PostgreSQL with those of Salt's own
// master.
func TestEventReturn(t *testing.T) {
	t.Parallel()
	kept := answers.Open[[]string](t, answersOf("event_return"), reference, eventOptions, *update)
	var ask func() []string
	if live() {
		ask = func() []string {
			return strings.Split(newReturning(t, "salt", eventOptions).eventRows(t), "\n")
		}
	}
	want := kept.Salt(t, kept.Turn(), "rows", ask)
	got := strings.Split(newReturning(t, "ours", eventOptions).eventRows(t), "\n")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("ours\n%s\nSalt's\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDatabaseAway: the database is down when events are acknowledged, the master is killed then,
// and later the database hangs. Nothing is lost or written twice, the order stays, no command
// waits, and the log reports it once.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	r := newReturning(t, "ours", eventOptions+"master_job_cache: pgjsonb\npython_timeout: 5\n")
	r.Run(t)
	e2e.Eventually(t, 60*time.Second, "the master", r.Ready)
	r.meet(t)
	var want []string
	send := func(n int) {
		want = append(want, fmt.Sprint(n))
		r.send(t, "site/n", fmt.Sprintf("{n: %d}", n))
	}
	for n := range 4 {
		send(n)
	}
	r.Kill(t) // after the acknowledgement, before any row was written
	r.Run(t)
	e2e.Eventually(t, 60*time.Second, "the master", r.Ready)
	r.answers(t)
	send(4)
	r.db.run(t)
	rows := func() {
		t.Helper()
		e2e.Eventually(t, 60*time.Second, "all rows", func() error {
			got, err := r.sent(t, "site/n")
			if err == nil && got != strings.Join(want, " ") {
				err = fmt.Errorf("rows %s, want %s", got, strings.Join(want, " "))
			}
			return err
		})
	}
	rows()
	e2e.Eventually(t, 60*time.Second, "all returns", func() error {
		out, err := r.db.ask("salt", `SELECT DISTINCT full_ret->'fun_args'->1->>'n' FROM salt_returns
			WHERE fun = 'event.send' ORDER BY 1`)
		if got := strings.Join(strings.Fields(out), " "); err == nil && got != "0 1 2 3 4" {
			err = errors.New("returns of " + got)
		}
		return err
	})
	// An event that jsonb refuses stops none of the others.
	r.send(t, "site/n", `{n: 99, text: "\0"}`)
	ping := func() time.Duration {
		t.Helper()
		got := r.Salt(t, "web", "test.ping")
		if !strings.Contains(got.Stdout, "True") {
			t.Errorf("ping: %v", got)
		}
		return got.Took
	}
	before := min(ping(), ping(), ping())
	r.db.Freeze(t)
	send(5)
	during := min(ping(), ping(), ping())
	t.Logf("test.ping takes %v, and %v while the database hangs", before, during)
	if during > 2*before+500*time.Millisecond {
		t.Errorf("test.ping takes %v while the database hangs, %v before", during, before)
	}
	r.db.Thaw(t)
	rows()
	text, err := os.ReadFile(r.Log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "returner takes no items"); n > 18 || n < 2 {
		t.Errorf("the log says %d times that the database is away", n)
	}
	if n := strings.Count(string(text), "the item is set aside"); n < 1 || n > 9 {
		t.Errorf("the log says %d times that an event was set aside", n)
	}
}

// jobOptions are those of both masters.
const jobOptions = `master_job_cache: pgjsonb
auto_accept: True
timeout: 15
`

// extOptions are those of both masters.
const extOptions = `ext_job_cache: pgjsonb
auto_accept: True
timeout: 15
`

// orders gives jobs of several kinds. The last one returns "the end".
func (r *returning) orders(t *testing.T) {
	t.Helper()
	r.Salt(t, "web", "test.arg", "1", "2.5", "x", "a={b: [c]}", "d=äöü", "e=null", "--metadata",
		"{who: you}")
	r.Salt(t, "web", "test.false")
	r.Salt(t, "web", "test.ping,test.echo", ",", "hi")
	r.Salt(t, "web", "event.send", "site/x")
	r.Runner(t, "test.arg", "1", "a=b")
	r.Salt(t, "web", "test.echo", "the end")
}

// jobRows gives orders, and returns their rows and what salt-run shows of one.
func (r *returning) jobRows(t *testing.T) string {
	t.Helper()
	r.db.run(t)
	r.Run(t)
	e2e.Eventually(t, 60*time.Second, "the master", r.Ready)
	r.meet(t)
	r.orders(t)
	// The job with two functions has no return of its own in the table of ext_job_cache.
	e2e.Eventually(t, 60*time.Second, "the last return, and the loads of all jobs", func() error {
		out, err := r.db.ask("salt", `SELECT (SELECT count(*) FROM salt_returns WHERE
			return::text LIKE '%the end%') || ' ' || (SELECT count(*) FROM jids WHERE
			load->>'fun' IN ('test.arg', 'test.false', 'event.send') OR
			load->>'fun' LIKE '%test.echo%')`)
		if err == nil && out != "1 5\n" {
			err = fmt.Errorf("returns and loads: %s", out)
		}
		return err
	})
	// Starts at the first order: the minion's answers while the test waited for it do not count.
	const since = `jid >= (SELECT min(jid) FROM jids WHERE load->>'fun' = 'test.arg')`
	rows := r.db.query(t, "salt", "SELECT 'load ' || jid || ' ' || load FROM jids WHERE "+since+
		" AND load->>'fun' NOT LIKE 'saltutil.%' ORDER BY jid") + "\n" +
		r.db.query(t, "salt", `SELECT fun || ' ' || jid || ' ' || return || ' ' || id || ' ' ||
		success || ' ' || full_ret FROM salt_returns WHERE fun NOT LIKE 'saltutil.%' AND
		fun NOT LIKE 'runner.jobs.%' AND `+since+" ORDER BY jid")
	jid := r.db.query(t, "salt", "SELECT max(jid) FROM salt_returns WHERE fun = 'test.false'")
	shown := r.Runner(t, "jobs.lookup_jid", jid, "--out=json").Stdout +
		r.Runner(t, "jobs.lookup_jid", jid, "ext_source=pgjsonb", "--out=json").Stdout
	return r.masked(rows + "\n" + shown)
}

// masked removes what differs from run to run.
func (r *returning) masked(rows string) string {
	rows = strings.NewReplacer(r.Dir, "DIR", r.Addr, "ADDR").Replace(rows)
	rows = regexp.MustCompile(`"(ts|pid)": \d+`).ReplaceAllString(rows, `"$1": N`)
	return stamps.ReplaceAllString(numbers.ReplaceAllString(rows, "JID"), "STAMP")
}

// TestJobCaches compares the rows of master_job_cache and of ext_job_cache in a real PostgreSQL
// with those of Salt's own master.
func TestJobCaches(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]string{"master_job_cache": jobOptions,
		"ext_job_cache": extOptions} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := answers.Open[[]string](t, answersOf(name), reference, options, *update)
			rows := func(kind string) []string {
				r := newReturning(t, kind, options)
				if name == "ext_job_cache" { // the minion writes its own returns
					r.minion = e2e.NewMinion(t, filepath.Dir(r.Dir), e2e.MinionOptions{ID: "web",
						Release: reference, Master: r.Addr, Extra: minionOptions + r.db.options()})
				}
				return strings.Split(r.jobRows(t), "\n")
			}
			var ask func() []string
			if live() {
				ask = func() []string { return rows("salt") }
			}
			want := kept.Salt(t, kept.Turn(), "rows", ask)
			if got := rows("ours"); strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("ours\n%s\nSalt's\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
