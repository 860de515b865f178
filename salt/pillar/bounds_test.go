package pillar_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/render"
	"clustermaster/salt/render/rendertest"
	"clustermaster/value"
)

// maker makes a compiler over files of pillar_roots.
func maker(t *testing.T, o pillar.Options, deps pillar.Deps,
	files map[string]string) *pillar.Compiler {
	t.Helper()
	if o.Roots == nil {
		o.Roots = []pillar.Env{{Name: "base", Roots: []string{"/"}}}
	}
	deps.Files = memory(files)
	if deps.Renderer == nil {
		deps.Renderer = rendertest.Renderer()
	}
	return pillar.New(deps, o, nil, nil)
}

// memory is files by path, in every environment.
type memory map[string]string

func (m memory) List(string) []string {
	var out []string
	for path := range m {
		out = append(out, path)
	}
	return out
}

func (m memory) Open(_, path string) (string, []byte, bool, error) {
	text, ok := m[path]
	return "/" + path, []byte(text), ok, nil
}

func errorsOf(made value.Map) string {
	v, _ := made.Get("_errors")
	return fmt.Sprint(v)
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	c := maker(t, pillar.Options{MaxSize: 1000}, pillar.Deps{}, map[string]string{
		"top.sls": "base: {'*': [a]}", "a.sls": "x: {{ 'y' * 2000 }}",
	})
	made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1"})
	if err != nil || len(made.Pillar) != 1 ||
		!strings.Contains(errorsOf(made.Pillar), "more than max_pillar_size (1000) allows") {
		t.Fatal(made.Pillar, err)
	}
}

func TestDeepIncludes(t *testing.T) {
	t.Parallel()
	files := map[string]string{"top.sls": "base: {'*': [s0]}"}
	for i := range 300 {
		files[fmt.Sprintf("s%d.sls", i)] = fmt.Sprintf("include: [s%d]\nk%d: 1\n", i+1, i)
	}
	made, err := maker(t, pillar.Options{}, pillar.Deps{}, files).Pillar(t.Context(),
		pillar.Request{ID: "web1"})
	if err != nil || !strings.Contains(errorsOf(made.Pillar), "goes deeper than 200 levels") {
		t.Fatal(errorsOf(made.Pillar), err)
	}
	if v, _ := made.Pillar.Get("k0"); v != int64(1) {
		t.Error("the rest of the pillar is missing:", made.Pillar)
	}
}

// stuck renders until its context ends.
type stuck struct{}

func (stuck) Render(ctx context.Context, _ render.Source, _ string, _ render.Context,
	_ render.Host) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	c := maker(t, pillar.Options{Timeout: 50 * time.Millisecond}, pillar.Deps{Renderer: stuck{}},
		map[string]string{"top.sls": "base: {}"})
	if made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1"}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Fatal(made, err)
	}
}

func TestPillarOpts(t *testing.T) {
	t.Parallel()
	c := maker(t, pillar.Options{PillarOpts: true, Release: "3008.3",
		MasterOpts: value.Map{{Key: "id", Value: "m1"}, {Key: "own", Value: "x"}}}, pillar.Deps{},
		map[string]string{
			"top.sls": "base: {'*': [a]}", "a.sls": "x: 1",
		})
	made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1",
		Grains: value.Map{{Key: "os", Value: "Debian"}}})
	if err != nil {
		t.Fatal(err)
	}
	master := mapOf(made.Pillar, "master")
	if master.String("own") != "x" || master.String("id") != "web1" ||
		mapOf(master, "grains").String("os") != "Debian" ||
		master.String("saltversion") != "3008.3" {
		t.Error(master)
	}
}

// kept remembers one pillar.
type kept struct {
	pillar value.Map
	at     time.Time
}

func (k kept) Pillar(context.Context, string, string) (value.Map, time.Time, bool, error) {
	return k.pillar, k.at, k.pillar != nil, nil
}

func TestCache(t *testing.T) {
	t.Parallel()
	files := map[string]string{"top.sls": "base: {'*': [a]}", "a.sls": "v: new"}
	old := value.Map{{Key: "v", Value: "old"}}
	override := value.Map{{Key: "o", Value: "cli"}}
	for _, tt := range []struct {
		name       string
		kept       kept
		req        pillar.Request
		want, keep string
	}{
		{"fresh", kept{old, time.Now()}, pillar.Request{ID: "a"}, "[{v old}]", "[]"},
		{"expired", kept{old, time.Now().Add(-time.Hour)}, pillar.Request{ID: "a"}, "[{v new}]",
			"[{v new}]"},
		{"cleaned", kept{old, time.Now()}, pillar.Request{ID: "a", CleanCache: true}, "[{v new}]",
			"[{v new}]"},
		{"none yet", kept{}, pillar.Request{ID: "a"}, "[{v new}]", "[{v new}]"},
		{"override of a fresh one", kept{old, time.Now()},
			pillar.Request{ID: "a", Override: override}, "[{v old} {o cli}]", "[]"},
		{"override of none is not kept", kept{}, pillar.Request{ID: "a", Override: override},
			"[{v new} {o cli}]", "[{v new}]"},
	} {
		c := maker(t, pillar.Options{Cache: true, CacheTTL: time.Minute},
			pillar.Deps{Kept: tt.kept}, files)
		made, err := c.Pillar(t.Context(), tt.req)
		if err != nil || fmt.Sprint(made.Pillar) != tt.want || fmt.Sprint(made.Keep) != tt.keep {
			t.Errorf("%s: %v, keep %v, %v", tt.name, made.Pillar, made.Keep, err)
		}
	}
}

// TestOverrideIsNotKept: what one request overrides must not decide later targets.
func TestOverrideIsNotKept(t *testing.T) {
	t.Parallel()
	c := maker(t, pillar.Options{}, pillar.Deps{},
		map[string]string{"top.sls": "base: {'*': [a]}", "a.sls": "color: blue"})
	made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1",
		Override: value.Map{{Key: "color", Value: "LEAK"}}})
	if err != nil || made.Pillar.String("color") != "LEAK" || made.Keep != nil {
		t.Fatal(made, err)
	}
}

// TestReloadedNodegroups: templates see the nodegroups in force.
func TestReloadedNodegroups(t *testing.T) {
	t.Parallel()
	c := maker(t, pillar.Options{MasterOpts: value.Map{{Key: "nodegroups",
		Value: value.Map{{Key: "web", Value: "before"}}}}}, pillar.Deps{},
		map[string]string{"top.sls": "base: {'*': [a]}", "a.sls": "web: {{ opts.nodegroups.web }}"})
	for _, want := range []string{"before", "after"} {
		made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1"})
		if err != nil || made.Pillar.String("web") != want {
			t.Errorf("%v, %v, want %s", made.Pillar, err, want)
		}
		c.SetNodegroups(value.Map{{Key: "web", Value: "after"}})
	}
}

// TestDecrypt decrypts with a key of its own.
func TestDecrypt(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Fatal("gpg is needed: apt install gnupg")
	}
	home, err := os.MkdirTemp("", "gpg") // t.TempDir is too long for the agent's socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		exec.Command("gpgconf", "--homedir", home, "--kill",
			"all").Run() // it may be gone
		os.RemoveAll(home)
	})
	gpg := func(in string, args ...string) string {
		cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--yes",
			"--trust-model", "always"}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	gpg("", "--pinentry-mode", "loopback", "--passphrase", "", "--quick-generate-key",
		"salt@example.net", "future-default", "default", "never")
	secret := gpg("s3cret", "--armor", "--encrypt", "-r", "salt@example.net")
	indented := "  " + strings.ReplaceAll(strings.TrimSpace(secret), "\n", "\n    ")
	files := map[string]string{
		"top.sls": "base: {'*': [a, b]}",
		"a.sls":   "a:\n  s: |\n  " + indented + "\n  t: plain\n",
		"b.sls": "#!yaml|gpg\nb: |\n  " + strings.ReplaceAll(strings.TrimSpace(secret), "\n",
			"\n  ") + "\n",
	}
	c := maker(t, pillar.Options{
		DecryptPillar: []any{value.Map{{Key: "a:s", Value: "gpg"}}},
		MasterOpts: value.Map{{Key: "gpg_keydir", Value: home},
			{Key: "gpg_decrypt_must_succeed", Value: true}},
	}, pillar.Deps{}, files)
	made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1"})
	if err != nil {
		t.Fatal(err)
	}
	a := mapOf(made.Pillar, "a")
	if strings.TrimSpace(a.String("s")) != "s3cret" || a.String("t") != "plain" ||
		strings.TrimSpace(made.Pillar.String("b")) != "s3cret" {
		t.Error(made.Pillar)
	}
	decryptsNothing(t, home, secret, files)
}

// decryptsNothing of what the minion gives, wherever the pillar is decrypted.
func decryptsNothing(t *testing.T, home, secret string, files map[string]string) {
	t.Helper()
	keys := value.Map{{Key: "gpg_keydir", Value: home},
		{Key: "gpg_decrypt_must_succeed", Value: true}}
	stolen := value.Map{{Key: "a", Value: value.Map{{Key: "s", Value: secret}}},
		{Key: "own", Value: secret}}
	decrypt := []any{value.Map{{Key: "a:s", Value: "gpg"}}, value.Map{{Key: "own", Value: "gpg"}}}
	gpg, extra := value.Map{{Key: "gpg",
		Value: value.Map{}}},
		value.Map{{Key: "extra_minion_data_in_pillar",
			Value: value.Map{{Key: "include", Value: "*"}}}}
	for name, o := range map[string]pillar.Options{
		"decrypt_pillar": {DecryptPillar: decrypt}, "gpg": {ExtPillar: []any{gpg}},
		"both":             {DecryptPillar: decrypt, ExtPillar: []any{gpg}},
		"ext_pillar_first": {DecryptPillar: decrypt, ExtPillar: []any{gpg}, ExtPillarFirst: true},
		"extra data":       {DecryptPillar: decrypt, ExtPillar: []any{extra, gpg}},
		"extra data first": {DecryptPillar: decrypt, ExtPillar: []any{extra, gpg},
			ExtPillarFirst: true},
	} {
		o.MasterOpts = keys
		for _, r := range []pillar.Request{{ID: "web1", Override: stolen},
			{ID: "web1", ExtraMinionData: stolen}} {
			made, err := maker(t, o, pillar.Deps{}, files).Pillar(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			told := made.Pillar.String("own")
			if r.Override != nil && told != secret || told != "" && told != secret {
				t.Errorf("%s: the minion is told %q", name, told)
			}
			if s := mapOf(made.Pillar, "a").String("s"); r.Override != nil && s != secret {
				t.Errorf("%s: in place of a secret it is told %q", name, s)
			}
		}
		for _, strategy := range []string{"smart", "list", "overwrite"} {
			o.MergeStrategy, o.MergeLists = strategy, true
			for _, own := range []any{[]any{secret}, value.Map{{Key: math.NaN(), Value: secret}}} {
				for _, r := range []pillar.Request{
					{ID: "web1", Override: value.Map{{Key: "own", Value: own}}},
					{ID: "web1", ExtraMinionData: value.Map{{Key: "own", Value: own}}},
				} {
					made, err := maker(t, o, pillar.Deps{}, files).Pillar(t.Context(), r)
					packed, packErr := value.Pack(made.Pillar.Without("a").Without("b"))
					if err != nil || packErr != nil || bytes.Contains(packed, []byte("s3cret")) {
						t.Errorf("%s, %s: of %v the minion is told %v, %v, %v", name, strategy, own,
							made.Pillar, err, packErr)
					}
				}
			}
		}
	}
}

// TestUnusualIDs: an id is no command, no pattern and no option, whatever it says.
func TestUnusualIDs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, text := range map[string]string{
		"tree/hosts/web1/f": "secret", "tree/hosts/*/f": "own",
	} {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	made := func(id, ext string, args any) value.Map {
		c := maker(t, pillar.Options{ExtPillar: []any{value.Map{{Key: ext, Value: args}}}},
			pillar.Deps{Functions: modules.New(modules.Deps{Version: "3008.3"})},
			map[string]string{"top.sls": "base: {}"})
		made, err := c.Pillar(t.Context(), pillar.Request{ID: id, Grains: value.Map{}})
		if err != nil {
			t.Fatal(err)
		}
		return made.Pillar
	}
	tree := value.Map{{Key: "root_dir", Value: filepath.Join(root, "tree")}}
	for _, tt := range []struct {
		id, ext string
		args    any
		want    string // "" for an error
	}{
		{"web1", "file_tree", tree, "[{f [115 101 99 114 101 116]}]"},
		{"*", "file_tree", tree, "[{f [111 119 110]}]"}, {"[w]eb1", "file_tree", tree, "[]"},
		{"web1", "cmd_yaml", "echo said: %s", "[{said web1}]"},
		{"$(echo x)", "cmd_yaml", "echo said: %s", "[{said $(echo x)}]"},
		{"a;echo b: c", "cmd_yaml", "echo said: %s", "[]"},
		{"`echo x`", "cmd_yaml", `echo "said: x%s"`, ""},
		{"';echo b: c;'", "cmd_yaml", `echo 'said: x%s'`, ""},
		{"a\nb", "cmd_yaml", "echo said: %s", ""}, {"-n", "cmd_yaml", "echo %s", ""},
		{"a", "cmd_json", `printf %b '{"said": "%s"}'`, "[{said a}]"},
		{"a b", "cmd_json", `printf '["%s"]'`, ""}, {"-x", "cmd_json", `echo %s`, ""},
		{`"c"`, "cmd_json", `echo '{"said":' %s }`, `[{said c}]`},
	} {
		got := made(tt.id, tt.ext, tt.args)
		if (tt.want == "") != (errorsOf(got) != "<nil>") || tt.want != "" &&
			fmt.Sprint(got) != tt.want {
			t.Errorf("%s %v for %q: %v, want %s", tt.ext, tt.args, tt.id, got, tt.want)
		}
	}
}

// TestFileTreeStaysInside: an id or a link must not lead file_tree elsewhere.
func TestFileTreeStaysInside(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, text := range map[string]string{"outside/secret": "s", "tree/hosts/web1/own": "o",
		"tree/hosts/web1/sub/x": "x"} {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"tree/hosts/web1/out": "outside",
		"tree/hosts/web1/sub/again": "tree/hosts/web1"} {
		if err := os.Symlink(filepath.Join(root, to), filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, follow := range []bool{false, true} {
		c := maker(t, pillar.Options{ExtPillar: []any{value.Map{{Key: "file_tree", Value: value.Map{
			{Key: "root_dir", Value: filepath.Join(root, "tree")},
			{Key: "follow_dir_links", Value: follow},
		}}}}}, pillar.Deps{}, map[string]string{"top.sls": "base: {}"})
		made, err := c.Pillar(t.Context(), pillar.Request{ID: "web1"})
		if err != nil {
			t.Fatal(err)
		}
		want := "[{out []} {sub [{again []} {x [120]}]} {own [111]}]"
		if follow {
			want = "[{out [{secret [115]}]} {sub [{again []} {x [120]}]} {own [111]}]"
		}
		if got := fmt.Sprint(made.Pillar); got != want {
			t.Errorf("follow %v: %s", follow, got)
		}
		if made, err := c.Pillar(t.Context(), pillar.Request{ID: "../../outside"}); err != nil ||
			len(made.Pillar) != 0 {
			t.Errorf("follow %v: %v %v", follow, made.Pillar, err)
		}
	}
}

// slowCommands are functions that wait until they may end. They may be the site's own.
type slowCommands struct {
	running atomic.Int64
	end     chan struct{}
	own     bool
}

func (s *slowCommands) Overrides(string) bool { return s.own }

func (s *slowCommands) Has(context.Context, string) bool { return true }

func (s *slowCommands) Call(context.Context, modules.Minion, string, []any, value.Map) (any, error) {
	s.running.Add(1)
	<-s.end
	return "said: x", nil
}

// TestCommandsOfPillars: when all minions ask for their pillars, their commands take turns. Those
// of a site's own function don't: they wait for a child of Python code, as others do.
func TestCommandsOfPillars(t *testing.T) {
	t.Parallel()
	for own, most := range map[bool]int64{false: 32, true: 100} {
		t.Run(fmt.Sprint("own ", own), func(t *testing.T) { commandsAtOnce(t, own, most) })
	}
}

func commandsAtOnce(t *testing.T, own bool, most int64) {
	const minions = 100
	slow := &slowCommands{end: make(chan struct{}), own: own}
	c := maker(t, pillar.Options{ExtPillar: []any{value.Map{{Key: "cmd_yaml", Value: "echo"}}}},
		pillar.Deps{Functions: slow}, map[string]string{"top.sls": "base: {}"})
	var all sync.WaitGroup
	for n := range minions {
		all.Go(func() {
			made, err := c.Pillar(t.Context(), pillar.Request{ID: fmt.Sprintf("web%d", n), Grains: value.Map{}})
			if err != nil || made.Pillar.String("said") != "x" {
				t.Errorf("%v, %v", made.Pillar, err)
			}
		})
	}
	stacks := make([]byte, 16<<20)
	for begun := 0; begun < minions; runtime.Gosched() {
		text := string(stacks[:runtime.Stack(stacks, true)])
		begun = strings.Count(text, "(*slowCommands).Call(") + strings.Count(text, "(*Weighted).Acquire(")
	}
	if n := slow.running.Load(); n != most {
		t.Errorf("%d commands run at a time, want %d", n, most)
	}
	close(slow.end)
	all.Wait()
}
