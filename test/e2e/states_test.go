package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// stateFiles are file_roots and pillar_roots of the masters.
var stateFiles = map[string]string{
	"pillar/top.sls":          "base:\n  '*': [common]\n  'G@e2e:3008*': [new]\n",
	"pillar/common.sls":       "include: [shared.ports]\n{% set n = 20 + 2 %}\nmotd: {{ grains.id }} says {{ n }}\nwho: {{ opts.id }}\nmaster: {{ salt['cmd.run']('echo run') }}\n",
	"pillar/shared/ports.sls": "ports: {ssh: 22}\n",
	"pillar/new.sls":          "release: new\n",
	"srv/top.sls":             "base:\n  '*': [web]\n",
	"srv/web/init.sls": `{% from 'web/map.jinja' import settings with context %}
include:
  - web.base
{{ settings.dir }}/motd:
  file.managed:
    - source: salt://web/motd.jinja
    - template: jinja
    - context: {extra: from-context}
    - require:
      - file: folder
{{ settings.dir }}/tree:
  file.recurse:
    - source: salt://web/tree
    - include_empty: True
    - require:
      - file: folder
watched:
  cmd.run:
    - name: echo changed >> {{ settings.dir }}/runs
    - onchanges:
      - file: {{ settings.dir }}/motd
own:
  demo.marked:
    - name: {{ settings.dir }}/mark
    - text: {{ salt['demo.shout'](pillar.motd) }}
    - require:
      - file: folder
`,
	"srv/web/base.sls":       "{% from 'web/map.jinja' import settings with context %}\nfolder:\n  file.directory:\n    - name: {{ settings.dir }}\n    - makedirs: True\n",
	"srv/web/map.jinja":      "{% set settings = {'dir': salt['config.get']('root_dir') ~ '/applied'} %}\n",
	"srv/web/motd.jinja":     "{{ pillar.motd }} on port {{ salt['pillar.get']('ports:ssh') }} of {{ grains['id'] }}, {{ extra }}\n",
	"srv/web/tree/a.txt":     "a\n",
	"srv/web/tree/sub/b.txt": "b\n",
	"srv/linked/a.txt":       "a\n",
	"srv/linked.sls":         "{{ salt['config.get']('root_dir') }}/linked:\n  file.recurse:\n    - source: salt://linked\n    - keep_symlinks: True\n",
	"srv/env.sls":            "{{ salt['config.get']('root_dir') }}/dev.txt:\n  file.managed:\n    - source: salt://dev.txt?saltenv=dev\n",
	"dev/dev.txt":            "of dev\n",
	"srv/_modules/demo.py":   "def shout(text):\n    return text.upper()\n",
	"srv/_states/demo.py": `import salt.utils.files

def marked(name, text):
    with salt.utils.files.fopen(name, "w") as f:
        f.write(text)
    return {"name": name, "result": True, "changes": {"text": text}, "comment": ""}
`,
	"srv/_grains/demo.py": "def demo():\n    return {'demo_grain': 'here'}\n",
}

// answers runs a function on all minions and returns each one's answer.
func answers(t *testing.T, m *Master, args ...string) map[string]any {
	t.Helper()
	r := m.Salt(t, append([]string{"--out=json", "--static", "--timeout=60"}, args...)...)
	got := map[string]any{}
	if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil {
		t.Fatalf("%v\n%v", err, r)
	}
	return got
}

// TestStates runs formulas of every kind on real minions through the balancer.
func TestStates(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	Venvs(t)
	c := NewCluster(t, ClusterOptions{Balancer: BalancerOptions{Idle: idleLimit}, Extra: `
auto_accept: True
file_recv: True
fileserver_backend: [roots, minionfs]
peer: {'state-.*': ['test.*']}
peer_run: {'state-.*': ['manage.up']}
`})
	for _, m := range c.Masters {
		m.Configure(t, strings.Replace(m.Config(t), "/srv]}", "/srv], dev: ["+m.Dir+"/dev]}", 1)+
			strings.ReplaceAll(jobIDsOptions, "DIR", m.Dir))
		writeBelow(t, m.Dir, "jobs.sls", []byte(jobIDsSLS))
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 100<<20/16)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(big); i += 4096 {
		big[i] = byte(rng.Uint32())
	}
	for _, m := range c.Masters {
		for path, text := range stateFiles {
			writeBelow(t, m.Dir, path, []byte(text))
		}
		writeBelow(t, m.Dir, "srv/big.bin", big)
		if err := os.MkdirAll(filepath.Join(m.Dir, "srv/web/tree/empty"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("a.txt", filepath.Join(m.Dir, "srv/linked/b.lnk")); err != nil {
			t.Fatal(err)
		}
	}
	c.Start(t)
	minions := c.AddMinions(t, "state", quick+"file_recv: True\n", Releases...)
	Eventually(t, 90*time.Second, "all minions answer", func() error {
		if got, r := c.Masters[0].Ping(t); len(got) != len(minions) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	for _, step := range []struct {
		name string
		run  func(*testing.T, *Cluster)
	}{
		{"Pillar", testStatePillar},
		{"SyncAll", testSyncAll},
		{"Apply", testApply},
		{"Copy", testCopy},
		{"CopyFolders", testCopyFolders},
		{"Links", testLinks},
		{"LargePillar", testLargePillar},
		{"BrokenPillar", testBrokenPillar},
		{"Mine", testMineCommands},
		{"TargetsWhileAMasterIsDead", testTargetsWithoutOne},
		{"Publish", testPublish},
		{"Event", testEventSend},
		{"JobIDs", testJobIDs},
		{"BigFileWhileAMasterDies", func(t *testing.T, c *Cluster) { testBigFile(t, c, big) }},
	} {
		t.Run(step.name, func(t *testing.T) { step.run(t, c) })
	}
}

func writeBelow(t *testing.T, dir, path string, b []byte) {
	t.Helper()
	full := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func testStatePillar(t *testing.T, c *Cluster) {
	answers(t, c.Masters[0], "*", "saltutil.refresh_pillar", "wait=True")
	got := answers(t, c.Masters[1], "*", "pillar.raw")
	for _, m := range c.Minions {
		p, _ := got[m.ID].(map[string]any)
		delete(p, "schedule") // the minion's own
		want := map[string]any{"motd": m.ID + " says 22", "who": m.ID, "master": "run",
			"ports": map[string]any{"ssh": 22.0}}
		if strings.HasPrefix(m.Release, "3008") {
			want["release"] = "new"
		}
		if fmt.Sprint(p) != fmt.Sprint(want) {
			t.Errorf("%s: pillar %v, want %v", m.ID, p, want)
		}
		var shown map[string]any
		if err := c.Masters[2].RunnerJSON(t, &shown, "pillar.show_pillar", m.ID); err != nil ||
			fmt.Sprint(shown) != fmt.Sprint(want) {
			t.Errorf("%s: pillar.show_pillar %v %v", m.ID, shown, err)
		}
	}
	// Only the command that overrides a pillar sees the override.
	if got := answers(t, c.Masters[0], "*", "pillar.items",
		`pillar={"color": "LEAK"}`); len(got) != len(c.Minions) {
		t.Errorf("override: %v", got)
	}
	if r := c.Masters[1].Salt(t, "-I", "color:LEAK", "test.ping"); !strings.Contains(r.Stdout+
		r.Stderr, "No minions matched") {
		t.Errorf("targets follow an override: %v", r)
	}
	if r := c.Masters[1].Salt(t, "-I", "release:new", "--out=json", "--static",
		"test.ping"); !strings.Contains(r.Stdout, "3008") || strings.Contains(r.Stdout, "3006") {
		t.Errorf("target on pillar: %v", r)
	}
}

func testSyncAll(t *testing.T, c *Cluster) {
	got := answers(t, c.Masters[1], "*", "saltutil.sync_all")
	for _, m := range c.Minions {
		if text := fmt.Sprint(got[m.ID]); !strings.Contains(text, "modules.demo") ||
			!strings.Contains(text, "states.demo") || !strings.Contains(text, "grains.demo") {
			t.Errorf("%s synced %s", m.ID, text)
		}
	}
	for id, v := range answers(t, c.Masters[2], "*", "demo.shout", "hello") {
		if v != "HELLO" {
			t.Errorf("%s: %v", id, v)
		}
	}
	Eventually(t, 30*time.Second, "the new grain is known to the masters", func() error {
		if r := c.Masters[0].Salt(t, "-G", "demo_grain:here", "--out=json", "--static",
			"test.ping"); strings.Count(r.Stdout, "true") != len(c.Minions) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// checkApplied reports what is wrong in a state run's result.
func checkApplied(result any, states int) error {
	chunks, ok := result.(map[string]any)
	if !ok || len(chunks) != states {
		return fmt.Errorf("result %v", result)
	}
	for name, v := range chunks {
		if chunk, _ := v.(map[string]any); chunk["result"] != true {
			return fmt.Errorf("%s: %v", name, v)
		}
	}
	return nil
}

func testApply(t *testing.T, c *Cluster) {
	for round := range 2 {
		got := answers(t, c.Masters[round], "*", "state.apply")
		for _, m := range c.Minions {
			if err := checkApplied(got[m.ID], 5); err != nil {
				t.Errorf("%s: %v", m.ID, err)
			}
		}
	}
	for _, m := range c.Minions {
		dir := filepath.Join(m.Dir, "applied")
		for path, want := range map[string]string{
			"motd":       m.ID + " says 22 on port 22 of " + m.ID + ", from-context\n",
			"tree/a.txt": "a\n", "tree/sub/b.txt": "b\n", "runs": "changed\n",
			"mark": strings.ToUpper(m.ID + " says 22"),
		} {
			if b, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(b) != want {
				t.Errorf("%s: %s is %q, want %q, %v", m.ID, path, b, want, err)
			}
		}
		if st, err := os.Stat(filepath.Join(dir, "tree/empty")); err != nil || !st.IsDir() {
			t.Errorf("%s: the empty folder is missing: %v", m.ID, err)
		}
	}
	// A changed file is served at once.
	for _, m := range c.Masters {
		writeBelow(t, m.Dir, "srv/web/tree/new.txt", []byte("new\n"))
	}
	<-time.After(time.Second)
	answers(t, c.Masters[2], "*", "state.sls", "web")
	for _, m := range c.Minions {
		if b, err := os.ReadFile(filepath.Join(m.Dir, "applied/tree/new.txt")); err != nil ||
			string(b) != "new\n" {
			t.Errorf("%s: a new file is not there: %q %v", m.ID, b, err)
		}
	}
}

func testCopy(t *testing.T, c *Cluster) {
	for id, v := range answers(t, c.Masters[0], "*", "cp.get_file_str", "salt://web/tree/a.txt") {
		if v != "a\n" {
			t.Errorf("%s: cp.get_file_str %v", id, v)
		}
	}
	for id, v := range answers(t, c.Masters[0], "*", "cp.list_master", "prefix=web/tree") {
		if want := "[web/tree/a.txt web/tree/new.txt web/tree/sub/b.txt]"; fmt.Sprint(v) != want {
			t.Errorf("%s: cp.list_master %v", id, v)
		}
	}
	for id, v := range answers(t, c.Masters[0], "*", "cp.hash_file", "salt://nosuch") {
		if text := fmt.Sprint(v); strings.Contains(text, "hsum") {
			t.Errorf("%s: hash of nothing: %s", id, text)
		}
	}
	for _, m := range c.Minions {
		path := filepath.Join(m.Dir, "applied", "motd")
		if got := answers(t, c.Masters[0], m.ID, "cp.push", path); got[m.ID] != true {
			t.Errorf("%s: cp.push %v", m.ID, got)
		}
		for _, from := range c.Masters {
			if r := from.Runner(t, "pushed.read", m.ID, path); !strings.Contains(r.Stdout,
				m.ID+" says 22") {
				t.Errorf("read from %s: %v", from.ID, r)
			}
		}
		// Other minions read it, each through its own master.
		for id, v := range answers(t, c.Masters[0], "*", "cp.get_file_str", "salt://"+m.ID+path) {
			if text, _ := v.(string); !strings.HasPrefix(text, m.ID+" says 22") {
				t.Errorf("%s reads what %s pushed: %v", id, m.ID, v)
			}
		}
	}
}

func testMineCommands(t *testing.T, c *Cluster) {
	for _, m := range c.Minions {
		if got := answers(t, c.Masters[0], m.ID, "mine.send", "test.echo",
			"mine of "+m.ID); got[m.ID] != true {
			t.Errorf("%s: mine.send %v", m.ID, got)
		}
	}
	want := map[string]any{}
	for _, m := range c.Minions {
		want[m.ID] = "mine of " + m.ID
	}
	for id, v := range answers(t, c.Masters[1], "*", "mine.get", "*", "test.echo") {
		if fmt.Sprint(v) != fmt.Sprint(want) {
			t.Errorf("%s: mine.get %v", id, v)
		}
	}
	var got map[string]any
	if err := c.Masters[2].RunnerJSON(t, &got, "mine.get", "*", "test.echo"); err != nil ||
		fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("salt-run mine.get: %v %v", got, err)
	}
	answers(t, c.Masters[0], c.Minions[0].ID, "mine.delete", "test.echo")
	answers(t, c.Masters[0], c.Minions[1].ID, "mine.flush")
	got = nil
	if err := c.Masters[1].RunnerJSON(t, &got, "mine.get", "*", "test.echo"); err != nil ||
		len(got) != len(c.Minions)-2 {
		t.Errorf("after delete and flush: %v %v", got, err)
	}
}

func testPublish(t *testing.T, c *Cluster) {
	for id, v := range answers(t, c.Masters[0], "*", "publish.publish", "state-*", "test.ping") {
		got, _ := v.(map[string]any)
		if len(got) != len(c.Minions) {
			t.Errorf("%s: publish.publish %v", id, v)
		}
		for other, pong := range got {
			if pong != true {
				t.Errorf("%s: %s said %v", id, other, pong)
			}
		}
	}
	for id, v := range answers(t, c.Masters[1], "*", "publish.publish", "state-*", "cmd.run",
		"id") {
		if got, _ := v.(map[string]any); len(got) != 0 {
			t.Errorf("%s: a function that is not allowed: %v", id, v)
		}
	}
	for id, v := range answers(t, c.Masters[2], c.Minions[0].ID, "publish.runner", "manage.up") {
		if got, _ := v.([]any); len(got) != len(c.Minions) {
			t.Errorf("%s: publish.runner %v", id, v)
		}
	}
}

func testEventSend(t *testing.T, c *Cluster) {
	// From another master than the minion's: events are subscribed to across the cluster.
	type outcome struct{ r Result }
	seen := make(chan outcome, len(c.Masters))
	for _, m := range c.Masters {
		go func() {
			r, err := run(m.test, m.programs.Run, "-c", m.ConfDir, "state.event", "own/tag",
				"count=1", "quiet=False")
			if err != nil {
				r.Stderr += err.Error()
			}
			seen <- outcome{r}
		}()
	}
	deadline := time.After(60 * time.Second)
	for left := len(c.Masters); left > 0; {
		answers(t, c.Masters[0], c.Minions[0].ID, "event.send", "own/tag", `{"said": "hello"}`)
		select {
		case o := <-seen:
			if left--; !strings.Contains(o.r.Stdout, "own/tag") ||
				!strings.Contains(o.r.Stdout, "hello") {
				t.Errorf("%v", o.r)
			}
		case <-time.After(time.Second):
		case <-deadline:
			t.Fatalf("%d masters never saw the event", left)
		}
	}
}

// testTargetsWithoutOne: targets by grains, pillar and mine are right from the moment a master
// dies, on whichever master they are evaluated, whichever died, and when it is back.
func testTargetsWithoutOne(t *testing.T, c *Cluster) {
	answers(t, c.Masters[0], "*", "saltutil.refresh_pillar", "wait=True")
	answers(t, c.Masters[0], "*", "mine.send", "test.echo", "mine-text")
	isNew := func(m *Minion) bool { return strings.HasPrefix(m.Release, "3008") }
	targets := []struct {
		args  []string
		means func(*Minion) bool
	}{
		{[]string{"-G", "e2e:3008*"}, isNew},
		{[]string{"-P", "e2e:300[67]\\..*"}, func(m *Minion) bool { return !isNew(m) }},
		{[]string{"-I", "release:new"}, isNew},
		{[]string{"-I", "ports:ssh:22"}, func(*Minion) bool { return true }},
		{[]string{"-J", "motd:state-.* SAYS 22"}, func(*Minion) bool { return true }},
		{[]string{"-S", "127.0.0.0/8"}, func(*Minion) bool { return true }},
		{[]string{"-S", "203.0.113.0/24"}, func(*Minion) bool { return false }},
		{[]string{"-C", "state-* and not I@release:new"},
			func(m *Minion) bool { return !isNew(m) }},
		{[]string{"-C", "( G@e2e:3006* or J@release:n.w ) and S@127.0.0.1"},
			func(m *Minion) bool { return isNew(m) || strings.HasPrefix(m.Release, "3006") }},
	}
	check := func(when string, asked ...*Master) {
		t.Helper()
		for _, m := range asked {
			for _, tt := range targets {
				var got, want []string
				for _, x := range c.Minions {
					if tt.means(x) {
						want = append(want, x.ID)
					}
				}
				slices.Sort(want)
				r := m.Salt(t, append([]string{"--preview-target", "--out=json"}, tt.args...)...)
				if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil && len(want) > 0 {
					t.Errorf("%s, asked at %s: %v\n%v", when, m.ID, err, r)
				}
				slices.Sort(got)
				if !slices.Equal(got, want) || strings.Contains(r.Stderr, "incomplete") {
					t.Errorf("%s, asked at %s: %v means %v, want %v\n%v", when, m.ID, tt.args, got,
						want, r)
				}
			}
		}
	}
	check("all alive", c.Masters...)
	for _, lost := range c.Masters {
		others := c.Others(lost)
		lost.Kill(t)
		check(lost.ID+" just died", others...)
		got := answers(t, others[0], "-C", "G@e2e:* and I@ports:ssh:22", "mine.get",
			"I@release:new", "test.echo", "compound")
		for _, m := range c.Minions {
			mine, _ := got[m.ID].(map[string]any)
			for _, other := range c.Minions {
				if _, there := mine[other.ID]; there != isNew(other) {
					t.Errorf("without %s, mine.get on %s: %v", lost.ID, m.ID, got[m.ID])
				}
			}
		}
		lost.Run(t)
		c.WaitReady(t, 60*time.Second, c.Masters...)
		check(lost.ID+" is back", c.Masters...)
	}
}

func testBigFile(t *testing.T, c *Cluster, big []byte) {
	sum := sha256.Sum256(big)
	want := hex.EncodeToString(sum[:])
	done := make(chan Result, 1)
	operator := c.Masters[0]
	for i, m := range c.Minions {
		dest := filepath.Join(m.Dir, "big.bin")
		victim := c.Masters[1+i%2]
		go func() {
			r, err := run(operator.test, operator.programs.Salt, "-c", operator.ConfDir,
				"--out=json", "--static", "--timeout=90", m.ID, "cp.get_file",
				"salt://big.bin", dest)
			if err != nil {
				r.Stderr += err.Error()
			}
			done <- r
		}()
		cached := filepath.Join(m.Dir, "var/cache/salt/minion")
		Eventually(t, 60*time.Second, "the file is on its way", func() error {
			if st, err := os.Stat(dest); err == nil && st.Size() > 0 {
				return nil
			}
			found := fmt.Errorf("nothing below %s", cached)
			filepath.WalkDir(cached, func(path string, d os.DirEntry,
				err error) error { // asked again
				if err == nil && !d.IsDir() && strings.Contains(path, "big.bin") {
					found = nil
				}
				return nil
			})
			return found
		})
		victim.Kill(t)
		r := <-done
		b, err := os.ReadFile(dest)
		got := sha256.Sum256(b)
		if err != nil || hex.EncodeToString(got[:]) != want {
			t.Errorf("%s: %d bytes, %v\n%v", m.ID, len(b), err, r)
		}
		os.Remove(dest)
		victim.Run(t)
		c.WaitReady(t, 60*time.Second, c.Masters...)
	}
}
