package gitfs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"clustermaster/serve/fileserver"
	"clustermaster/value"
)

var update = flag.Bool("update", false, "ask Salt anew and write testdata/salt.json")

// question is one configuration, and environments that are asked for beside those that there are.
type question struct {
	Name    string         `json:"name"`
	Options map[string]any `json:"options"`
	Ask     []string       `json:"ask,omitempty"`
	Pillar  []any          `json:"pillar,omitempty"` // remotes of git_pillar, in place of gitfs
}

type envAnswer struct {
	Files    []string          `json:"files"`
	Dirs     []string          `json:"dirs"`
	Links    map[string]string `json:"links"`
	Contents map[string]any    `json:"contents"`
}

type answer struct {
	Refused bool                 `json:"refused,omitempty"`
	Envs    []string             `json:"envs"`
	Env     map[string]envAnswer `json:"env"`
	// Pillars are, by saltenv and pillarenv, lists of environment, whether it is mounted, and files
	Pillars map[string][][]any `json:"pillars,omitempty"`
}

// saltAnswers is the file of Salt's answers; Asked is the hash of the questions and of the
// repositories.
type saltAnswers struct {
	Asked   string            `json:"asked"`
	Answers map[string]answer `json:"answers"`
}

// questions are the configurations that are compared. R and S stand for two repositories.
func questions(ids map[string]string) []question {
	list := func(v ...any) []any { return v }
	m := func(kv ...any) map[string]any {
		out := make(map[string]any)
		for i := 0; i < len(kv); i += 2 {
			out[kv[i].(string)] = kv[i+1]
		}
		return out
	}
	remote := func(url string, options ...any) map[string]any { return m(url, options) }
	var out []question
	add := func(name string, options map[string]any, ask ...string) {
		out = append(out, question{Name: name, Options: options, Ask: ask})
	}
	pillar := func(name string, options map[string]any, remotes ...any) {
		out = append(out, question{Name: name, Options: options, Pillar: remotes})
	}
	rs := "gitfs_remotes"
	add("plain", m(rs, list("R")), ids["first"], ids["dev"][:8], "absent", "v0.1", "abc123")
	add("two remotes", m(rs, list("R", "S")))
	add("two remotes, other order", m(rs, list("S", "R")))
	add("root", m(rs, list("R"), "gitfs_root", "states"))
	add("root with slash", m(rs, list("R"), "gitfs_root", "states/"))
	add("deep root", m(rs, list("R"), "gitfs_root", "states/app"))
	add("absent root", m(rs, list("R"), "gitfs_root", "nowhere"))
	add("root of one", m(rs, list(remote("R", m("root", "web")), "S")))
	add("mountpoint", m(rs, list("R"), "gitfs_mountpoint", "salt://mnt/deep"))
	add("mountpoint and root",
		m(rs, list(remote("R", m("root", "states"), m("mountpoint", "/a/b/")))))
	add("mountpoint of one", m(rs, list(remote("R", m("mountpoint", "salt://one")), "S")))
	add("base", m(rs, list("R"), "gitfs_base", "dev"))
	add("base is a tag", m(rs, list("R"), "gitfs_base", "v1.0"))
	add("base is a commit", m(rs, list("R"), "gitfs_base", ids["first"]))
	add("base is absent", m(rs, list("R"), "gitfs_base", "nothing"), "base")
	add("base of one", m(rs, list(remote("R", m("base", "qa")), "S")))
	add("branches only", m(rs, list("R"), "gitfs_ref_types", list("branch")), ids["first"], "v1.0")
	add("tags only", m(rs, list("R"), "gitfs_ref_types", list("tag")), "base", "dev")
	add("commits only", m(rs, list("R"), "gitfs_ref_types", list("sha")), "base", ids["qa"], "dev")
	add("tags before branches", m(rs, list(remote("R", m("ref_types", list("TAG", "Branch"))))))
	add("fallback", m(rs, list("R"), "gitfs_fallback", "dev"), "absent", "abc", "v1.0")
	add("fallback is a tag", m(rs, list(remote("R", m("fallback", "v0.1")))), "absent")
	add("fallback is absent", m(rs, list(remote("R", m("fallback", "none")))), "absent")
	add("whitelist", m(rs, list("R"), "gitfs_saltenv_whitelist", list("base", "v*")), "dev")
	add("blacklist", m(rs, list("R"), "gitfs_saltenv_blacklist", list("v\\d.*", "qa")), "qa",
		"v1.0")
	add("both lists", m(rs, list("R"), "gitfs_saltenv_whitelist", "base,dev,qa",
		"gitfs_saltenv_blacklist", list("qa")), "qa")
	add("whitelist of one", m(rs, list(remote("R", m("saltenv_whitelist", list("base"))), "S")))
	add("no mapping", m(rs, list("R"), "gitfs_disable_saltenv_mapping", true), "dev")
	add("no mapping, some mapped", m(rs, list(remote("R", m("disable_saltenv_mapping", true),
		m("saltenv", list(m("prod", list(m("ref", "v1.0"))),
			m("test", list(m("ref", "dev")))))))), "dev")
	add("saltenv", m(rs, list(remote("R", m("saltenv", list(
		m("foo", list(m("ref", "dev"), m("mountpoint", "salt://foo"), m("root", "states"))),
		m("bar", list(m("mountpoint", "bar/")))))))), "bar", "dev")
	add("saltenv base",
		m(rs, list(remote("R", m("saltenv", list(m("base", list(m("ref", "dev")))))))))
	add("saltenv of all", m(rs, list("R", "S"), "gitfs_saltenv", list(
		m("foo", list(m("ref", "qa"))), m("base", list(m("root", "web"))), m("dev",
			list(m("mountpoint", "d"))))))
	add("saltenv of all and of one", m(rs,
		list(remote("R", m("saltenv", list(m("foo", list(m("ref", "dev"))))))),
		"gitfs_saltenv", list(m("foo", list(m("ref", "qa"), m("root", "web"))),
			m("baz", list(m("ref", "v0.1"))))))
	add("saltenv to a missing ref", m(rs,
		list(remote("R", m("saltenv", list(m("foo", list(m("ref", "missing")))))))))
	add("saltenv of two environments", m(rs, list(remote("R", m("saltenv", list(
		m("a", list(m("ref", "dev"))), m("b", list(m("ref", "dev")))))))))
	add("all_saltenvs", m(rs, list(remote("R", m("all_saltenvs", "dev")))), "absent", "abc")
	add("all_saltenvs of one",
		m(rs, list(remote("R", m("all_saltenvs", "master"), m("mountpoint", "r")), "S")))
	add("refspecs", m(rs, list("R"), "gitfs_refspecs",
		list("+refs/heads/dev:refs/remotes/origin/dev")))
	add("refspecs to other places", m(rs, list(remote("R", m("refspecs", list(
		"+refs/heads/*:refs/remotes/origin/h/*", "+refs/tags/v1.0:refs/remotes/origin/tag"))))))
	add("names", m(rs, list(remote("R", m("name", "one"), m("root", "states")),
		remote("R ", m("name", "two"), m("root", "web")))))
	add("md5", m(rs, list("R"), "hash_type", "md5"))
	add("unknown option", m(rs, list(remote("R", m("rooot", "x")))))
	add("unknown ref type", m(rs, list("R"), "gitfs_ref_types", list("branch", "note")))
	add("the same remote twice", m(rs, list("R", "R")))
	add("hexadecimal base", m(rs, list("R"), "gitfs_base", "1234"))
	add("numbers as values", m(rs, list(remote("S", m("base", 3.1), m("mountpoint", 7)))))
	pillar("pillar: branch", m(), "master R", "dev R")
	pillar("pillar: global branch", m("git_pillar_branch", "qa"), "R")
	pillar("pillar: __env__", m(), "__env__ R")
	pillar("pillar: __env__ with base and fallback", m(),
		remote("__env__ R", m("base", "dev"), m("fallback", "v1.0")), "__env__ S")
	pillar("pillar: env", m(), remote("master R", m("env", "dev")),
		remote("qa R", m("env", "qa"), m("root", "web")))
	pillar("pillar: env of all", m("git_pillar_env", "dev"), "master R", "prod S")
	pillar("pillar: root", m("git_pillar_root", "states"), "master R", "qa R")
	pillar("pillar: mountpoint", m(), remote("master R", m("mountpoint", "a/b"), m("root", "web")),
		"master S")
	pillar("pillar: all_saltenvs", m(), remote("__env__ R", m("all_saltenvs", "dev")),
		remote("master S", m("name", "x")))
	pillar("pillar: absent branch", m(), "nothing R", "v1.0 R", remote("none R", m("fallback", "qa")))
	pillar("pillar: base", m("git_pillar_base", "dev"), "dev R", "master R")
	pillar("pillar: unknown option", m(), remote("master R", m("saltenv", "x")))
	pillar("pillar: base without __env__", m(), remote("master R", m("base", "dev")))
	return out
}

func second(t testing.TB) *repo {
	r := newRepo(t)
	r.write(map[string]string{"top.sls": "base:\n  '*':\n    - other\n", "other.sls": "other: {}\n",
		"web/init.sls": "web: second repository\n"})
	r.commit("first")
	r.git("branch", "3.1")
	r.git("branch", "prod")
	r.git("tag", "v1.0")
	return r
}

// fill puts the places of the repositories into options, and makes them wire values.
func fill(v any, places map[string]string) any {
	switch v := v.(type) {
	case string:
		if branch, r, ok := strings.Cut(v, " "); ok && places[r] != "" {
			return branch + " " + places[r]
		}
		if p, ok := places[strings.TrimSpace(v)]; ok {
			if strings.HasSuffix(v, " ") {
				p += "/"
			}
			return p
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = fill(e, places)
		}
		return out
	case map[string]any:
		out := make(map[string]any)
		for k, e := range v {
			out[fill(k, places).(string)] = fill(e, places)
		}
		return out
	}
	return v
}

func wired(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = wired(e)
		}
		return out
	case map[string]any:
		out := value.Map{}
		for _, k := range sorted(v) {
			out = append(out, value.Pair{Key: k, Value: wired(v[k])})
		}
		return out
	case int:
		return int64(v)
	}
	return v
}

// defaults are Salt's of the options that the tests leave out.
var defaults = map[string]any{
	"base": "master", "update_interval": int64(60), "ssl_verify": true,
	"refspecs":  []any{"+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"},
	"ref_types": []any{"branch", "tag", "sha"},
}

// openWith opens a store with options as they stand in a configuration.
func openWith(t testing.TB, options map[string]any, pillar []any) (*Store, []Problem) {
	t.Helper()
	hashType, _ := options["hash_type"].(string)
	var pillars []Config
	if len(pillar) > 0 {
		remotes, _ := wired(pillar).([]any)
		global := func(option string) any {
			if v, ok := options["git_pillar_"+option]; ok {
				return wired(v)
			}
			if option == "branch" {
				return "master"
			}
			return defaults[option]
		}
		pillars = []Config{{Role: RolePillar, Remotes: remotes, Global: global}}
	}
	remotes, _ := wired(options["gitfs_remotes"]).([]any)
	dir := t.TempDir()
	alone := newAlone()
	s, problems, err := New(Options{
		Dir: filepath.Join(dir, "git"), CacheDir: dir, HashType: hashType,
		Pillars: pillars,
		Files: Config{Role: RoleFiles, Remotes: remotes, Global: func(option string) any {
			if v, ok := options["gitfs_"+option]; ok {
				return wired(v)
			}
			return defaults[option]
		}},
	}, alone, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, problems
}

// TestServesAsSaltDoes compares environments, lists, links, contents, modes and hashes with those
// of Salt's own gitfs, for many configurations.
func TestServesAsSaltDoes(t *testing.T) {
	r, ids := sample(t)
	other := second(t)
	asked := questions(ids)
	text, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256(slices.Concat(text, []byte(r.git("for-each-ref")),
		[]byte(other.git("for-each-ref"))))
	bound := hex.EncodeToString(h[:])
	places := map[string]string{"R": "file://" + r.dir, "S": "file://" + other.dir}
	file := filepath.Join("testdata", "salt.json")
	if *update {
		askSalt(t, file, bound, asked, places)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var have saltAnswers
	if err := json.Unmarshal(b, &have); err != nil {
		t.Fatal(err)
	}
	if have.Asked != bound {
		t.Fatal("the questions are not those that Salt was asked; run go test ./serve/gitfs -run TestServesAsSaltDoes -update with GitPython in PYTHONPATH")
	}
	for _, q := range asked {
		t.Run(q.Name, func(t *testing.T) {
			t.Parallel()
			want, ok := have.Answers[q.Name]
			if !ok {
				t.Fatal("Salt was not asked this")
			}
			remotes, _ := fill(q.Pillar, places).([]any)
			s, problems := openWith(t, fill(q.Options, places).(map[string]any), remotes)
			if want.Refused != (len(problems) > 0) {
				t.Fatalf("Salt refuses: %v; our problems: %v", want.Refused, problems)
			}
			if want.Refused {
				return
			}
			for key, o := range s.round(t.Context(), s.keys) {
				if o.Err != nil {
					t.Fatalf("mirror %s: %v", key, o.Err)
				}
			}
			if len(remotes) > 0 {
				comparePillars(t, s, wired(remotes).([]any), want)
				return
			}
			compare(t, s, q, want)
		})
	}
}

func compare(t *testing.T, s *Store, q question, want answer) {
	t.Helper()
	if got := s.Envs(); !slices.Equal(got, want.Envs) {
		t.Errorf("environments: got %q, Salt has %q", got, want.Envs)
	}
	for _, env := range sorted(want.Env) {
		w := want.Env[env]
		l, err := s.Lists(t.Context(), env)
		if err != nil {
			t.Errorf("env %s: %v", env, err)
		}
		if !slices.Equal(l.Files, w.Files) {
			t.Errorf("env %s: files %q, Salt lists %q", env, l.Files, w.Files)
		}
		if !slices.Equal(l.Dirs, w.Dirs) {
			t.Errorf("env %s: folders %q, Salt lists %q", env, l.Dirs, w.Dirs)
		}
		links := make(map[string]string)
		for _, p := range l.Links {
			links[p.Key.(string)] = p.Value.(string)
		}
		if _, in := slices.BinarySearch(s.Envs(), env); !in && !isHex(env) {
			links = map[string]string{} // Salt lists no links of a fallback
		}
		if !reflect.DeepEqual(links, w.Links) {
			t.Errorf("env %s: links %q, Salt lists %q", env, links, w.Links)
		}
		for _, name := range sorted(w.Contents) {
			got := served(t, s, name, env)
			want := w.Contents[name]
			if want == "error" {
				want = nil
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("env %s: %s: got %v, Salt serves %v", env, name, got, want)
			}
		}
	}
}

// comparePillars compares the folders that git_pillar gives to each pair of environments.
func comparePillars(t *testing.T, s *Store, remotes []any, want answer) {
	t.Helper()
	for _, asked := range sorted(want.Pillars) {
		saltenv, pillarenv, _ := strings.Cut(strings.ReplaceAll(asked, "None", ""), " ")
		trees, err := s.Pillars(t.Context(), remotes, saltenv, pillarenv)
		if err != nil {
			t.Errorf("%s: %v", asked, err)
		}
		var got [][]any
		for _, tree := range trees {
			files, err := tree.List(t.Context())
			if err != nil {
				t.Errorf("%s: %v", asked, err)
			}
			list := make([]any, len(files))
			for i, f := range files {
				list[i] = f
			}
			got = append(got, []any{tree.Env, tree.Mounted, list})
		}
		if fmt.Sprint(got) != fmt.Sprint(want.Pillars[asked]) {
			t.Errorf("saltenv and pillarenv %s: got %v, Salt has %v", asked, got, want.Pillars[asked])
		}
	}
}

// served reads a file in pieces, and says what ask.py says.
func served(t *testing.T, s *Store, name, env string) any {
	t.Helper()
	if strings.Contains(name, "../") {
		return nil // package fileserver refuses it
	}
	f, ok, err := s.Find(t.Context(), name, env)
	if err != nil {
		t.Errorf("find %s: %v", name, err)
	}
	if !ok {
		return nil
	}
	var data bytes.Buffer
	for {
		p, err := f.Piece(t.Context(), int64(data.Len()), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(p) == 0 {
			break
		}
		data.Write(p)
	}
	sum, err := f.Sum(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256(data.Bytes())
	return []any{hex.EncodeToString(h[:])[:16], f.Stat()[0], sum}
}

var _ fileserver.File = (*content)(nil)

// askSalt asks Salt's own classes and keeps the answers.
func askSalt(t *testing.T, file, bound string, asked []question, places map[string]string) {
	t.Helper()
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	filled := make([]question, len(asked))
	for i, q := range asked {
		pillar, _ := fill(q.Pillar, places).([]any)
		filled[i] = question{q.Name, fill(q.Options, places).(map[string]any), q.Ask, pillar}
	}
	in, err := json.Marshal(filled)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(venvs, "salt-3008.3", "bin", "python"),
		filepath.Join("testdata", "ask.py"))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask Salt: %v", err)
	}
	k := saltAnswers{Asked: bound}
	if err := json.Unmarshal(out, &k.Answers); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
