package conformance

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
	"clustermaster/wire"
)

// wired is a look at a running master that shows whether options have reached what uses them.
type wired struct {
	options string // separated by blanks
	ask     func(t *testing.T, m *subject) string
	own     bool // Salt has no such option, or shows it in another way
}

// wiring is a set of options that one master can have together.
type wiring struct {
	name   string
	both   string // configuration of both masters: DIR is the master's folder, ADDR its address
	set    string // the options, each with another value than its default
	files  map[string]string
	python bool // with Salt's Python beside the master
	// prepare makes files that are not the same in each run.
	prepare func(t *testing.T, m *subject)
	ports   []int  // on one of which the master takes requests, if not on Salt's
	refused string // what the log says without the options, with which the master serves nobody
	looks   []wired
}

// TestOptions starts the program twice for each set: as it is by default, and with the options.
// Every look at the two must show a difference, and what it shows with the options must be what
// Salt's master shows with them.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, w := range wirings() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			plain := w.looked(t, ours, false)
			set := map[kind][]string{ours: w.looked(t, ours, true)}
			compared := slices.ContainsFunc(w.looks, func(l wired) bool { return !l.own })
			salts := make([]string, len(w.looks))
			if compared {
				var asked []string
				for i, l := range w.looks {
					asked = append(asked, fmt.Sprint(i, " ", l.options))
				}
				if slices.Contains(kinds(), theirs) {
					set[theirs] = w.looked(t, theirs, true)
				}
				salts = saltsText(t, "options_"+w.name, fmt.Sprint(w.both, w.set, w.files), asked, set)
			}
			for i, l := range w.looks {
				got := set[ours][i]
				if got == plain[i] {
					t.Errorf("%s: nothing shows a difference from the default: %.600s", l.options, got)
				}
				if !l.own && got != salts[i] {
					t.Errorf("%s:\nours   %.1500s\nSalt's %.1500s", l.options, got, salts[i])
				}
			}
		})
	}
}

// looked starts a master and returns what each look shows.
func (w wiring) looked(t *testing.T, k kind, set bool) []string {
	t.Helper()
	options := "timeout: 5\n" + w.both
	if !strings.Contains(w.both, "auto_accept: ") {
		options += "auto_accept: True\n"
	}
	if set {
		options += w.set
	}
	if k == theirs {
		options += "worker_threads: 3\nkeysize: 2048\nenable_fqdns_grains: False\nloop_interval: 1\n"
	} else if w.python {
		options += "python_host: " +
			filepath.Join(e2e.Venvs(t), "salt-"+reference, "bin", "python3") + "\n"
	}
	c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true, Programs: programs(t, k)})
	m := &subject{Master: c.Masters[0], kind: k, cfg: w.name, base: c.Base}
	var kept strings.Builder
	for line := range strings.Lines(m.Config(t)) {
		// The last of two equal keys is not everywhere the one that counts.
		name, _, _ := strings.Cut(line, ":")
		if !regexp.MustCompile("(?m)^" + name + ":").MatchString(options) {
			kept.WriteString(line)
		}
	}
	placed := strings.NewReplacer("DIR", m.Dir, "ADDR", m.Addr)
	m.Configure(t, kept.String()+placed.Replace(options))
	for name, text := range w.files {
		m.write(t, placed.Replace(text), name)
	}
	if w.prepare != nil {
		w.prepare(t, m)
	}
	if w.refused != "" && !set {
		m.Run(t)
		e2e.Eventually(t, time.Minute, "the log names the cause", func() error {
			text, err := os.ReadFile(m.Log)
			if err == nil && !strings.Contains(string(text), w.refused) {
				err = fmt.Errorf("%s", text)
			}
			return err
		})
		return make([]string, len(w.looks))
	}
	if w.ports == nil {
		m.start(t)
	} else {
		m.Run(t)
		e2e.Eventually(t, time.Minute, "the master takes requests", func() error {
			return m.open(w.ports...)
		})
	}
	var out []string
	for _, l := range w.looks {
		if l.own && k == theirs {
			out = append(out, "")
			continue
		}
		text := strings.ReplaceAll(l.ask(t, m), m.Dir, "DIR")
		out = append(out, jids.ReplaceAllString(text, "JID"))
	}
	return out
}

// masterOpt is an option as minions are told.
func masterOpt(key string) wired {
	return wired{options: key, ask: func(t *testing.T, m *subject) string {
		opts, ok := m.signIn(t, "asks", 3).request(t, "_master_opts").(value.Map)
		if !ok {
			t.Fatal("_master_opts is no map")
		}
		v, _ := opts.Get(key)
		return say(t, m, v)
	}}
}

// pillarKey is a key of a minion's pillar, or what is said instead of the pillar.
func pillarKey(options, id, key string, more ...value.Pair) wired {
	return wired{options: options, ask: func(t *testing.T, m *subject) string {
		p, err := m.pillarOf(t, id, more...)
		if err != nil {
			return err.Error()
		}
		v, ok := p.Get(key)
		if !ok {
			return "nothing"
		}
		return say(t, m, v)
	}}
}

// pillarOf is a minion's pillar.
func (m *subject) pillarOf(t testing.TB, id string, more ...value.Pair) (value.Map, error) {
	t.Helper()
	return m.signIn(t, id, 3).pillar(t, more...)
}

// pillar is the client's pillar.
func (c *client) pillar(t testing.TB, more ...value.Pair) (value.Map, error) {
	t.Helper()
	load := c.pillarLoad(t)
	for _, p := range more {
		load = load.Set(p.Key.(string), p.Value)
	}
	reply, err := exchange(t, c.m.Addr, c.seal(t, load), time.Minute)
	if err != nil {
		return nil, err
	}
	raw, err := wire.OpenPrivate(c.Key, c.got.Master, c.sender(), reply, "pillar",
		load.String("nonce"))
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, show(t, reply))
	}
	return value.UnpackMap(raw)
}

// meeting has two minions ask for their pillars, each of which waits for the other to be made.
func meeting(options string) wired {
	return wired{options: options, ask: func(t *testing.T, m *subject) string {
		ids, said := []string{"meets1", "meets2"}, make([]string, 2)
		for _, id := range ids {
			m.signIn(t, id, 3)
		}
		var both sync.WaitGroup
		for i, id := range ids {
			both.Go(func() { said[i] = pillarKey("", id, "v", pair("grains", dict("id", id))).ask(t, m) })
		}
		both.Wait()
		return fmt.Sprint(slices.Contains(said, `"met"`))
	}}
}

// ends reports whether something ends within the time that no default of these options reaches.
func (m *subject) ends(ended func() bool) bool { return endsWithin(8*time.Second, ended) }

// endsWithin is ends for what takes longer on a busy machine.
func endsWithin(limit time.Duration, ended func() bool) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if ended() {
			return true
		}
		<-time.After(100 * time.Millisecond)
	}
	return false
}

// children counts the master's processes whose command contains a text.
func (m *subject) children(t *testing.T, of string) int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", m.PID()))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, task := range tasks {
		list, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for _, pid := range strings.Fields(string(list)) {
			line, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if err == nil && strings.Contains(string(line), of) {
				n++
			}
		}
	}
	return n
}

// firstLines leaves out what follows the second line of a template's error: the traces name the
// files of each implementation.
func firstLines(w wired) wired {
	ask := w.ask
	w.ask = func(t *testing.T, m *subject) string {
		parts := strings.SplitN(ask(t, m), `\n`, 3)
		return strings.Join(parts[:min(2, len(parts))], "\n")
	}
	return w
}

// own marks a look that only ours can be asked for.
func own(w wired) wired {
	w.own = true
	return w
}

func wirings() []wiring {
	return []wiring{pillarWiring(), overwriteWiring(), limitWiring(), keyWiring(), pythonWiring(), idleWiring(),
		siteWiring(), gitWiring(), commandWiring(), silentWiring(), signedWiring(), readyWiring(), passphraseWiring(),
		rightsWiring(), portWiring(), reactionWiring(), unprivilegedWiring(), outputWiring(), tableWiring(),
		rendererWiring(), folderWiring(), gitPlaceWiring(), gitMapWiring(), gitPillarWiring(),
		gitPillarAloneWiring(), gitPillarEnvWiring(), gitPasswordWiring(), gitKeyWiring(), grainEventWiring(),
		orderWiring()}
}

// pillarWiring has options of templates, top files and pillars.
func pillarWiring() wiring {
	top := "base:\n  '*': [%s, over, lists1, lists2, sees, lines, sealed]\n  broken: [broken]\n" +
		"  unknown: [unknown]\n"
	return wiring{
		name: "pillar",
		both: `pillar_roots: {base: [DIR/pillar], dev: [DIR/pillardev]}
ext_pillar: [{cmd_json: 'echo ''{"ext": "yes"}'''}]
decrypt_pillar: ['sealed|deep']
`,
		set: `state_top: other.sls
state_top_saltenv: dev
env_order: [dev, base]
default_top: dev
top_file_merging_strategy: same
state_auto_order: False
state_events: True
state_aggregate: [pkg]
failhard: True
jinja_env: {trim_blocks: True}
jinja_sls_env: {line_statement_prefix: '%%'}
jinja_lstrip_blocks: True
jinja_trim_blocks: True
allow_undefined: True
nodegroups: {ng: 'L@a,b'}
pillar_merge_lists: True
pillar_includes_override_sls: True
pillarenv_from_saltenv: True
pillar_safe_render_error: False
ext_pillar_first: True
on_demand_ext_pillar: [cmd_json]
decrypt_pillar_default: json
decrypt_pillar_delimiter: '|'
decrypt_pillar_renderers: [json]
`,
		files: map[string]string{
			"pillar/top.sls":       fmt.Sprintf(top, "first"),
			"pillar/other.sls":     fmt.Sprintf(top, "second"),
			"pillardev/top.sls":    "dev: {'*': [env]}\n",
			"pillardev/other.sls":  "dev: {'*': [env]}\n",
			"pillardev/env.sls":    "env: dev\n",
			"pillar/first.sls":     "top: first\n",
			"pillar/second.sls":    "top: second\n",
			"pillar/over.sls":      "include: [included]\nwho: over\n",
			"pillar/included.sls":  "who: included\n",
			"pillar/lists1.sls":    "list: [1]\n",
			"pillar/lists2.sls":    "list: [2]\n",
			"pillar/sees.sls":      "sees: {{ pillar.get('ext', 'nothing') }}\n",
			"pillar/lines.sls":     "lines: |\n  a\n  %% if True\n  b\n  %% endif\n",
			"pillar/sealed.sls":    "sealed: {deep: '{\"opened\": 1}'}\n",
			"pillar/broken.sls":    "{{ 1 / 0 }}\n",
			"pillar/unknown.sls":   "unknown: '[{{ nosuch }}]'\n",
			"pillardev/broken.sls": "a: 1\n",
		},
		looks: []wired{
			masterOpt("state_top"), masterOpt("state_top_saltenv"), masterOpt("env_order"),
			masterOpt("default_top"), masterOpt("top_file_merging_strategy"),
			masterOpt("state_auto_order"), masterOpt("state_events"), masterOpt("state_aggregate"),
			masterOpt("failhard"), masterOpt("jinja_env"), masterOpt("jinja_sls_env"),
			masterOpt("jinja_lstrip_blocks"), masterOpt("jinja_trim_blocks"),
			masterOpt("nodegroups"),
			pillarKey("state_top", "a", "top"),
			pillarKey("jinja_sls_env", "a", "lines"),
			pillarKey("allow_undefined", "unknown", "unknown"),
			pillarKey("pillar_merge_lists", "a", "list"),
			pillarKey("pillar_includes_override_sls", "a", "who"),
			pillarKey("pillarenv_from_saltenv", "a", "top", pair("saltenv", "dev")),
			firstLines(pillarKey("pillar_safe_render_error", "broken", "_errors")),
			pillarKey("ext_pillar_first", "a", "sees"),
			pillarKey("on_demand_ext_pillar", "a", "demanded",
				pair("ext", dict("cmd_json", `echo '{"demanded": 1}'`))),
			pillarKey("decrypt_pillar_default decrypt_pillar_delimiter decrypt_pillar_renderers",
				"a", "sealed"),
		},
	}
}

// overwriteWiring has options that don't go with those of pillarWiring.
func overwriteWiring() wiring {
	pillar := "base: {'*': [one, two]}\n"
	return wiring{
		name: "overwrite",
		both: `fileserver_backend: [roots, minionfs]
file_recv: True
`,
		set: `pillar_source_merging_strategy: overwrite
pillar_cache: True
pillar_cache_ttl: 100000
minion_data_cache: False
enforce_mine_cache: True
minion_data_cache_events: False
allow_minion_key_revoke: False
rotate_aes_key: False
minionfs_env: dev
minionfs_whitelist: ['fs*']
`,
		files: map[string]string{
			"pillar/top.sls": pillar,
			"pillar/one.sls": "map: {a: 1}\nchanges: before\n",
			"pillar/two.sls": "map: {b: 2}\n",
		},
		looks: []wired{
			pillarKey("pillar_source_merging_strategy", "a", "map"),
			{options: "pillar_cache pillar_cache_ttl", ask: func(t *testing.T,
				m *subject) string {
				before := pillarKey("", "cached", "changes").ask(t, m)
				m.write(t, "map: {a: 1}\nchanges: after\n", "pillar/one.sls")
				defer m.write(t, "map: {a: 1}\nchanges: before\n", "pillar/one.sls")
				return before + ", " + pillarKey("", "cached", "changes").ask(t, m)
			}},
			{options: "minion_data_cache enforce_mine_cache", ask: func(t *testing.T,
				m *subject) string {
				if _, err := m.pillarOf(t, "mined", pair("grains", dict("os", "Plan9"))); err != nil {
					t.Fatal(err)
				}
				c := m.signIn(t, "mined", 3)
				c.request(t, "_mine", pair("data", dict("test.a", "1")), pair("clear", false))
				get := func(tgt, kind string) string {
					return say(t, m, c.request(t, "_mine_get", pair("tgt", tgt), pair("fun", "test.a"),
						pair("tgt_type", kind)))
				}
				return get("mined", "glob") + " " + get("os:Plan9", "grain")
			}},
			{options: "allow_minion_key_revoke", ask: func(t *testing.T, m *subject) string {
				c := m.signIn(t, "leaves", 3)
				said := say(t, m, c.request(t, "revoke_auth"))
				said = regexp.MustCompile(`"ts": \d+`).ReplaceAllString(said, "TS")
				lists, err := m.Keys(t)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(said, strings.Contains(fmt.Sprint(lists["minions"]), "leaves"))
			}},
			{options: "rotate_aes_key", ask: func(t *testing.T, m *subject) string {
				m.signIn(t, "deleted", 3)
				before := m.signIn(t, "stays", 3).got.AES.String()
				if r := m.Key(t, "-y", "-d", "deleted"); r.Code != 0 {
					t.Fatal(r)
				}
				e2e.Eventually(t, 30*time.Second, "the key is deleted", func() error {
					lists, err := m.Keys(t)
					if err == nil && strings.Contains(fmt.Sprint(lists), "deleted") {
						err = fmt.Errorf("%v", lists)
					}
					return err
				})
				other := func() bool {
					return m.signIn(t, "stays", 3).got.AES.String() != before
				}
				return fmt.Sprint("another key: ", m.ends(other))
			}},
			{options: "minionfs_env minionfs_whitelist", ask: func(t *testing.T,
				m *subject) string {
				for _, id := range []string{"fs1", "other"} {
					m.signIn(t, id, 3).request(t, "_file_recv", pair("path", []any{"x"}),
						pair("loc", int64(0)), pair("data", []byte("abc")), pair("size", int64(3)))
				}
				c := m.signIn(t, "fs1", 3)
				var text string
				e2e.Eventually(t, 30*time.Second, "pushed files are listed", func() error {
					text = ""
					for _, env := range []string{"base", "dev"} {
						text += env + " " + say(t, m, c.request(t, "_file_list",
							pair("saltenv", env))) + " "
					}
					if !strings.Contains(text, "fs1/x") {
						return fmt.Errorf("%s", text)
					}
					return nil
				})
				return text
			}},
		},
	}
}

// keyWiring has options of keys.
func keyWiring() wiring {
	return wiring{
		name: "keys",
		both: "master_sign_pubkey: True\n",
		set: `master_sign_key_name: other_sign
signing_key_pass: abc
`,
		looks: []wired{
			{options: "master_sign_key_name signing_key_pass", ask: func(t *testing.T,
				m *subject) string {
				text, err := os.ReadFile(m.path("pki", "other_sign.pem"))
				return fmt.Sprint(err == nil, strings.Contains(string(text), "ENCRYPTED"))
			}},
		},
	}
}

// limitWiring has limits of pillars and requests, and what is written into the log.
func limitWiring() wiring {
	return wiring{
		name: "limits",
		both: "file_recv: True\nlog_level_logfile: info\nlog_level: info\n",
		set: `render_timeout: 2
render_output: 65536
render_memory: 268435456
render_workers: 1
render_idle: 1
render_cache: 0
max_pillar_size: 65536
pillar_timeout: 5
max_frame_size: 131072
file_recv_copies: False
zmq_backlog: 7
log_datefmt_logfile: '%Y'
log_granular_levels: {clustermaster.cluster: error}
log_fmt_console: 'console %(asctime)s %(message)s'
log_datefmt: '%Y'
`,
		files: map[string]string{
			"pillar/top.sls": `base:
  slow: [slow]
  long: [long]
  hungry: [hungry]
  large: [large1, large2]
  waits: [wait1, wait2, wait3, wait4, wait5]
  meets1: [meets]
  meets2: [meets]
  again: [again]
`,
			"pillar/again.sls": "v: {{ 1 + 1 }}\n",
			// The time of functions that the master runs for a template does not count.
			"pillar/slow.sls": "#!py\nimport time\ndef run():\n  time.sleep(4)\n" +
				"  return {'v': 'done'}\n",
			"pillar/long.sls":   "v: {{ 'x' * 100000 }}\n",
			"pillar/hungry.sls": "v: {{ ('x' * 300000000) | length }}\n",
			"pillar/large1.sls": "v: {{ 'x' * 40000 }}\n",
			"pillar/large2.sls": "w: {{ 'x' * 40000 }}\n",
			"pillar/wait1.sls":  waits, "pillar/wait2.sls": waits, "pillar/wait3.sls": waits,
			"pillar/wait4.sls": waits, "pillar/wait5.sls": waits + "v: done\n",
			"pillar/meets.sls": "v: {{ salt['cmd.run']('sh DIR/meet ' ~ grains.id ~ ' DIR') }}\n",
			"meet":             meet,
		},
		looks: []wired{
			own(pillarKey("render_timeout", "slow", "v")), own(pillarKey("render_output", "long", "v")),
			own(pillarKey("render_memory", "hungry", "v")),
			own(pillarKey("max_pillar_size", "large", "v")),
			own(pillarKey("pillar_timeout", "waits", "v")),
			own(meeting("render_workers")),
			{options: "render_cache", own: true, ask: func(t *testing.T, m *subject) string {
				const hits = `render_cache_total{result="hit"}`
				before := m.counters(t)[hits]
				for range 2 {
					pillarKey("", "again", "v").ask(t, m)
				}
				return fmt.Sprint("hit: ", m.counters(t)[hits] > before)
			}},
			{options: "max_frame_size", own: true, ask: func(t *testing.T, m *subject) string {
				c := m.signIn(t, "framed", 3)
				load := c.load(t, "_mine", pair("data",
					dict("test.a", strings.Repeat("x", 200000))), pair("clear", false))
				_, err := exchange(t, m.Addr, c.seal(t, load), 5*time.Second)
				return fmt.Sprint("taken: ", err == nil)
			}},
			{options: "file_recv_copies", own: true, ask: func(t *testing.T, m *subject) string {
				m.signIn(t, "pushes", 3).request(t, "_file_recv", pair("path", []any{"x"}),
					pair("loc", int64(0)), pair("data", []byte("abc")), pair("size", int64(3)))
				_, err := os.Stat(m.path("cache", "minions", "pushes", "files", "x"))
				return fmt.Sprint("copied: ", err == nil)
			}},
			{options: "zmq_backlog", own: true, ask: func(t *testing.T, m *subject) string {
				out, err := exec.Command("ss", "-Hltn", "src", m.Addr).Output()
				if err != nil {
					t.Fatal(err)
				}
				var waiting []string
				for line := range strings.Lines(string(out)) {
					if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[3], m.Addr+":450") {
						waiting = append(waiting, f[2])
					}
				}
				return fmt.Sprint(waiting)
			}},
			{options: "log_datefmt_logfile", own: true, ask: func(t *testing.T, m *subject) string {
				line, _, _ := strings.Cut(string(readFile(t, m.Log)), ",")
				return regexp.MustCompile(`\d`).ReplaceAllString(line, "9")
			}},
			{options: "log_granular_levels", own: true, ask: func(t *testing.T, m *subject) string {
				return fmt.Sprint(strings.Contains(string(readFile(t, m.Log)), "leader of the cluster"))
			}},
			{options: "log_fmt_console log_datefmt", own: true, ask: func(t *testing.T, m *subject) string {
				line, _, _ := strings.Cut(string(readFile(t, m.Output)), "master starts")
				return regexp.MustCompile(`\d`).ReplaceAllString(line, "9")
			}},
			{options: "render_idle", own: true, ask: func(t *testing.T, m *subject) string {
				return fmt.Sprint("ended: ", m.ends(func() bool { return m.children(t, "render") == 0 }))
			}},
		},
	}
}

// siteWiring has options of renderers, of rights and of lost subscribers.
func siteWiring() wiring {
	return wiring{
		name: "site",
		both: `enable_clear_commands: True
external_auth: {auto: {ann: [test.ping], '*': [test.version]}}
`,
		set: `renderer: json
render_python: DIR/python
permissive_acl: True
publish_retry: False
`,
		files: map[string]string{
			"pillar/top.sls":   `{"base": {"plain": ["plain"], "shows": ["shows"]}}`,
			"pillar/plain.sls": `{"v": "{{ 1 + 1 }}"}`,
			"pillar/shows.sls": "#!py\nimport sys\n\n\ndef run():\n    return {'v': sys.prefix}\n",
		},
		prepare: func(t *testing.T, m *subject) {
			other := filepath.Join(e2e.Venvs(t), "salt-3007.15", "bin", "python3")
			path := m.write(t, "#!/bin/sh\nexec "+other+" \"$@\"\n", "python")
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		looks: []wired{
			pillarKey("renderer", "plain", "v"),
			{options: "render_python", own: true, ask: func(t *testing.T, m *subject) string {
				return filepath.Base(strings.Trim(pillarKey("", "shows", "v").ask(t, m), `"`))
			}},
			{options: "permissive_acl", own: true, ask: func(t *testing.T, m *subject) string {
				m.signIn(t, "aimed", 3)
				return may(t, m, ann, "test.ping") + " " + may(t, m, ann, "test.version")
			}},
			{options: "publish_retry", own: true, ask: func(t *testing.T, m *subject) string {
				m.signIn(t, "away", 3) // its job stays open
				m.loseSubscribers(t)
				again := func() bool { return m.counters(t)["jobs_resent_total"] > 0 }
				return fmt.Sprint("sent again: ", m.ends(again))
			}},
		},
	}
}

// loseSubscribers publishes a job to the minion "away" and closes all subscriptions at once, as a
// balancer does that gives a master up, until the master calls that a loss.
func (m *subject) loseSubscribers(t *testing.T) {
	t.Helper()
	lost := func() bool {
		return m.counters(t)[`minion_subscriber_losses_total{endpoint="publish"}`] > 0
	}
	for range 4 {
		two := []*subscriber{subscribe(t, m.Addr, ""), subscribe(t, m.Addr, "")}
		<-time.After(18 * time.Second) // only departures after 15 s count
		if r := m.Salt(t, "--async", "away", "test.ping"); r.Code != 0 {
			t.Fatal(r)
		}
		for _, s := range two {
			s.conn.Close()
		}
		if m.ends(lost) {
			return
		}
	}
	t.Fatal("the master saw no loss of subscribers")
}

// pythonWiring has limits of modules in Python.
func pythonWiring() wiring {
	return wiring{
		name:   "python",
		python: true,
		both: `extension_modules: DIR/ext
event_return: [stuck]
roster_file: DIR/roster
`,
		set: `python_timeout: 3
python_ssh_timeout: 3
returner_queue_size: 1048576
python_memory: 402653184
python_output: 65536
python_processes: 3
python_children: 1
python_pillars_per_child: 1
python_runner_timeout: 1
`,
		files: map[string]string{
			"roster":                 "mute: {host: ADDR, port: 4612}\n",
			"ext/returners/stuck.py": "import time\n\n\ndef event_return(events):\n    time.sleep(600)\n",
			"ext/runners/naps.py":    "import time\n\n\ndef long():\n    time.sleep(4)\n    return \"done\"\n",
			"pillar/top.sls": `base:
  slow: [slow]
  long: [long]
  hungry: [hungry]
  many: [many]
  'process*': [process]
  meets1: [meets]
  meets2: [meets]
`,
			"pillar/slow.sls":    "v: {{ salt['own.slow']() }}\n",
			"pillar/long.sls":    "v: {{ salt['own.long']() }}\n",
			"pillar/hungry.sls":  "v: {{ salt['own.hungry']() }}\n",
			"pillar/many.sls":    "v: {{ salt['own.many']() }}\n",
			"pillar/meets.sls":   "v: {{ salt['own.meet'](grains.id) }}\n",
			"pillar/process.sls": "v: {{ salt['own.process']() }}\n",
			"ext/modules/own.py": `import os
import subprocess
import time


def slow():
    time.sleep(4)
    return "done"


def long():
    return "x" * 100000


def hungry():
    return len(b"x" * 400000000)


def many():
    running = [subprocess.Popen(["sleep", "1.5"]) for _ in range(6)]
    return str([one.wait() for one in running])


def process():
    return str(os.getpid())


def meet(minion):
    with open("DIR/%s.here" % minion, "w") as file:
        file.write(str(os.getpid()))
    for _ in range(100):
        if here("meets1") and here("meets2"):
            return "met"
        time.sleep(0.1)
    os.unlink("DIR/%s.here" % minion)
    return "alone"


def here(minion):
    try:
        with open("DIR/%s.here" % minion) as file:
            os.kill(int(file.read()), 0)  # one that took too long was ended
    except (OSError, ValueError):
        return False
    return True
`,
		},
		looks: []wired{
			own(pillarKey("python_timeout", "slow", "v")),
			own(pillarKey("python_output", "long", "v")),
			own(pillarKey("python_memory", "hungry", "v")),
			own(pillarKey("python_processes", "many", "v")),
			own(meeting("python_children")),
			{options: "python_runner_timeout", own: true, ask: func(t *testing.T, m *subject) string {
				return m.Runner(t, "naps.long").String()
			}},
			{options: "python_ssh_timeout", own: true, ask: func(t *testing.T, m *subject) string {
				ln, err := net.Listen("tcp", hostPort(m.Addr, 4612))
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				go func() { // says nothing for a while
					for {
						conn, err := ln.Accept()
						if err != nil {
							return
						}
						time.AfterFunc(6*time.Second, func() { conn.Close() })
					}
				}()
				r := m.Runner(t, "ssh.cmd", "mute", "test.ping")
				return fmt.Sprint("ended: ", strings.Contains(r.String(), "python_ssh_timeout"))
			}},
			{options: "returner_queue_size", own: true, ask: func(t *testing.T, m *subject) string {
				c := m.signIn(t, "fires", 3)
				for range 4 {
					c.request(t, "_minion_event", pair("tag", "my/large"), pair("data",
						dict("text", strings.Repeat("x", 500_000))))
				}
				return fmt.Sprint("full: ", endsWithin(25*time.Second, func() bool {
					return m.counters(t)[`returner_refused_total{queue="event_return/stuck"}`] > 0
				}))
			}},
			{options: "python_pillars_per_child", own: true, ask: func(t *testing.T, m *subject) string {
				one, other := pillarKey("", "process1", "v"), pillarKey("", "process2", "v")
				return fmt.Sprint("one process: ", one.ask(t, m) == other.ask(t, m))
			}},
		},
	}
}

// idleWiring has a Python host that is left alone.
func idleWiring() wiring {
	return wiring{
		name:   "idle",
		python: true,
		both:   "extension_modules: DIR/ext\n",
		set:    "python_idle: 1\n",
		files: map[string]string{
			"pillar/top.sls": "base: {'*': [own]}\n",
			"pillar/own.sls": "v: {{ salt['own.here']() }}\n",
			"ext/modules/own.py": `def here():
    return "yes"
`,
		},
		looks: []wired{{options: "python_idle", own: true, ask: func(t *testing.T, m *subject) string {
			answer := pillarKey("", "asks", "v").ask(t, m)
			return fmt.Sprint(answer, ", ended: ",
				m.ends(func() bool { return m.children(t, "bin/python3\x00-c") == 0 }))
		}}},
	}
}

const (
	waits = "w: {{ salt['cmd.run']('sleep 1.2') }}\n"
	// meet is run for two minions: each looks for the other's file for ten seconds.
	meet = `#!/bin/sh
touch "$2/$1.here"
for i in $(seq 100); do
	if [ -e "$2/meets1.here" ] && [ -e "$2/meets2.here" ]; then echo met; exit; fi
	sleep 0.1
done
rm "$2/$1.here"
echo alone
`
)
