package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// longWay is an orchestration with every kind of step. MARKS is a folder in which each minion
// leaves a mark at the second step.
const longWay = `
ping:
  salt.function: [{name: test.ping}, {tgt: '*'}, {expect_minions: True}]
work:
  salt.function:
    - name: cmd.run
    - tgt: '*'
    - expect_minions: True
    - arg: ["touch MARKS/$(cat /proc/sys/kernel/random/uuid); sleep 8; echo done"]
    - require: [{salt: ping}]
apply:
  salt.state: [{tgt: '*'}, {sls: apply}, {require: [{salt: work}]}]
batch:
  salt.function: [{name: test.echo}, {tgt: '*'}, {batch: 2}, {arg: [hello]}, {require: [{salt: apply}]}]
told:
  salt.wait_for_event: [{name: 'e2e/go/*'}, {id_list: [a, b]}, {timeout: 90}, {require: [{salt: batch}]}]
nested:
  salt.runner: [{name: state.orchestrate}, {mods: short}, {require: [{salt: told}]}]
both:
  salt.parallel_runners:
    - runners:
        one: [{name: state.orchestrate}, {kwarg: {mods: short}}]
        two: [{name: state.orchestrate}, {kwarg: {mods: short}}]
    - require: [{salt: nested}]
`

const shortWay = "one:\n  salt.function: [{name: test.ping}, {tgt: '*'}, {expect_minions: True}]\n"

// TestOrchestration runs orchestrations. While the minions work, it kills a master: first the
// leader, then a follower, never the master that runs the orchestration. A third master fires the
// event that the orchestration waits for. Every step must get the returns of all minions.
func TestOrchestration(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	Venvs(t)
	c := NewCluster(t, ClusterOptions{})
	c.Start(t)
	c.AddMinions(t, "minion", quick, Releases...)
	for _, m := range c.Masters {
		Eventually(t, 90*time.Second, "all keys are pending on "+m.ID,
			func() error { return hasKeys(t, m, "minions_pre", c.IDs()) })
	}
	if r := c.Masters[0].Key(t, "-A", "-y"); r.Code != 0 {
		t.Fatal(r)
	}
	Eventually(t, 60*time.Second, "all minions answer", func() error {
		if got, r := c.Masters[0].Ping(t); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	for _, step := range []struct {
		name   string
		choose func(*testing.T, *Cluster) *Master
	}{{"KillLeader", leader}, {"KillFollower", follower}} {
		ok := t.Run(step.name, func(t *testing.T) {
			lost := step.choose(t, c)
			others := c.Others(lost)
			orchestrated(t, c, others[0], func() { lost.Kill(t) }, others[1])
			lost.Run(t)
			c.WaitReady(t, 60*time.Second, c.Masters...)
		})
		if !ok {
			break
		}
	}
}

// orchestrated runs longWay on a master, calls happen while all minions work, and fires the awaited
// event at another master.
func orchestrated(t *testing.T, c *Cluster, m *Master, happen func(), fires *Master) {
	t.Helper()
	marks := t.TempDir()
	for name, text := range map[string]string{"long.sls": strings.ReplaceAll(longWay, "MARKS",
		marks), "short.sls": shortWay, "apply.sls": "changed:\n  test.succeed_with_changes: []\n"} {
		for _, one := range c.Masters {
			if err := os.WriteFile(filepath.Join(one.Dir, "srv", name), []byte(text),
				0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	type end struct {
		r   Result
		err error
	}
	ended := make(chan end, 1)
	go func() {
		r, err := run(m.test, m.programs.Run, "-c", m.ConfDir, "state.orchestrate", "long",
			"--out=json")
		ended <- end{r, err}
	}()
	Eventually(t, 60*time.Second, "all minions are at work", func() error {
		list, err := os.ReadDir(marks)
		if err == nil && len(list) != len(c.Minions) {
			err = fmt.Errorf("%d of %d are", len(list), len(c.Minions))
		}
		return err
	})
	happen()
	var e end
	for i := 0; ; i++ { // only listeners get an event: fire until the state has it
		select {
		case e = <-ended:
		case <-time.After(time.Second):
			fires.Runner(t, "event.send", "e2e/go/x", fmt.Sprintf("{id: %c}", 'a'+i%2))
			continue
		}
		break
	}
	if e.err != nil {
		t.Fatal(e.err)
	}
	if err := wentWell(e.r, c.IDs()); err != nil {
		t.Errorf("%v\n%v", err, e.r)
	}
	if list, err := os.ReadDir(marks); err != nil || len(list) != len(c.Minions) {
		t.Errorf("the work was done %d times by %d minions (%v)", len(list), len(c.Minions), err)
	}
}

// wentWell checks the document of longWay: every state is true, and each state that lists minions
// lists every minion.
func wentWell(r Result, ids []string) error {
	var doc struct {
		Retcode int
		Data    map[string]map[string]struct {
			Result  *bool
			Comment any
			Changes struct {
				Ret    map[string]any
				Return any
				Seen   []string `json:"minions_seen"`
			}
		}
	}
	if err := json.Unmarshal([]byte(r.Stdout), &doc); err != nil {
		return err
	}
	if r.Code != 0 || doc.Retcode != 0 || len(doc.Data) != 1 {
		return fmt.Errorf("exit code %d, retcode %d, %d masters", r.Code, doc.Retcode,
			len(doc.Data))
	}
	var errs []error
	for _, states := range doc.Data {
		if len(states) != 7 {
			errs = append(errs, fmt.Errorf("%d states", len(states)))
		}
		for tag, s := range states {
			if s.Result == nil || !*s.Result {
				errs = append(errs, fmt.Errorf("%s: %v", tag, s.Comment))
			}
			switch strings.Split(tag, "_|-")[1] {
			case "ping", "work", "apply", "batch":
				if got := slices.Sorted(maps.Keys(s.Changes.Ret)); !slices.Equal(got, ids) {
					errs = append(errs, fmt.Errorf("%s: returns of %v", tag, got))
				}
			case "told":
				if slices.Sort(s.Changes.Seen); !slices.Equal(s.Changes.Seen, []string{"a", "b"}) {
					errs = append(errs, fmt.Errorf("%s: %v", tag, s.Changes.Seen))
				}
			}
		}
	}
	return errors.Join(errs...)
}
