package e2e

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// jobIDsOptions let an event publish jobs with ids of its choice. The returns of the first are not
// to be kept.
const jobIDsOptions = "unique_jid: True\nreactor: ['own/jobs': ['DIR/jobs.sls']]\n"

const jobIDsSLS = `
a:
  local.test.sleep: [{tgt: 'state-*'}, {arg: [20]}, {jid: '{{ data.gone }}'}, {nocache: True}]
b:
  local.test.sleep: [{tgt: 'state-*'}, {arg: [20]}, {jid: '{{ data.kept }}'}]
`

// described is the answer of jobs.list_job.
type described struct {
	Function string
	Minions  []string
	Result   map[string]any
}

func describe(t *testing.T, m *Master, jid string) (d described, err error) {
	t.Helper()
	return d, m.RunnerJSON(t, &d, "jobs.list_job", jid)
}

// testJobIDs: the ids of unique_jid have the form of a single master's, and minions work under
// them. nocache of a publish holds on every master, even if the publishing master dies and knows
// nothing when the returns come.
func testJobIDs(t *testing.T, c *Cluster) {
	form := regexp.MustCompile(`20\d{18}_\d{7}(\d{10})\b`)
	made := map[string]bool{}
	for _, m := range c.Masters {
		r := m.Salt(t, "*", "test.ping", "--async")
		jid := form.FindStringSubmatch(r.Stdout)
		if jid == nil {
			t.Fatalf("no job id of unique_jid in\n%v", r)
		}
		made[jid[1]] = true
		Eventually(t, 60*time.Second, "returns of "+jid[0], func() error {
			if d, err := describe(t, c.Masters[0], jid[0]); err != nil ||
				len(d.Result) < len(c.Minions) {
				return fmt.Errorf("%+v, %v", d, err)
			}
			return nil
		})
	}
	if len(made) != len(c.Masters) {
		t.Errorf("masters make the same ids: %v", made)
	}

	publisher, others := c.Masters[0], c.Others(c.Masters[0])
	now := strings.Replace(time.Now().UTC().Format("20060102150405.000000"), ".", "", 1)
	gone, kept := now+"_1", now+"_2"
	if r := publisher.Runner(t, "event.send", "own/jobs",
		fmt.Sprintf("{gone: '%s', kept: '%s'}", gone, kept)); r.Code != 0 {
		t.Fatalf("%v", r)
	}
	seen := map[string]bool{} // on a slow machine one minion's job may end before another's begins
	Eventually(t, 60*time.Second, "all minions run the jobs", func() error {
		for _, jid := range []string{gone, kept} {
			for id, job := range answers(t, others[0], "*", "saltutil.find_job", jid) {
				if m, _ := job.(map[string]any); m["jid"] == jid {
					seen[id+" "+jid] = true
				}
			}
		}
		if len(seen) < 2*len(c.Minions) {
			return fmt.Errorf("only %v", seen)
		}
		return nil
	})
	early := uncached(t, c.Masters[:1]) // on a slow machine; a dead master's counts are lost
	publisher.Kill(t)
	publisher.Run(t)
	Eventually(t, 90*time.Second, "the returns have come", func() error {
		d, err := describe(t, others[0], kept)
		if n := early + uncached(t, c.Masters); err != nil || len(d.Result) < len(c.Minions) ||
			n < len(c.Minions) {
			return fmt.Errorf("%+v, %v; %d of %s", d, err, n, gone)
		}
		return nil
	})
	c.WaitReady(t, 60*time.Second, c.Masters...)
	for _, m := range c.Masters {
		d, err := describe(t, m, gone)
		if slices.Sort(d.Minions); err != nil || d.Function != "test.sleep" || len(d.Result) > 0 ||
			!slices.Equal(d.Minions, c.IDs()) {
			t.Errorf("%s says %+v, %v", m.ID, d, err)
		}
	}
}

// uncached counts the returns that masters were asked not to keep.
func uncached(t *testing.T, masters []*Master) (n int) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	for _, m := range masters {
		resp, err := client.Get(fmt.Sprintf("http://%s:%d/metrics", m.Addr, MetricsPort))
		if err != nil {
			continue // the master is starting
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var more int
			if strings.HasPrefix(line, "clustermaster_returns_total{") &&
				strings.Contains(line, `"nocache"`) {
				if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &more); err != nil {
					t.Fatal(err)
				}
			}
			n += more
		}
	}
	return n
}
