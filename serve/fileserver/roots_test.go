package fileserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// golden is what the real file server answered; testdata/roots.py writes it.
type golden struct {
	Files    map[string]string
	Dirs     []string
	Links    map[string]string
	Variants map[string]map[string]any
	Cases    []struct {
		Variant, Cmd string
		Load         map[string]any
		Reply        any
	}
}

func load(t testing.TB) *golden {
	t.Helper()
	b, err := os.ReadFile("testdata/roots.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(b, &g); err != nil {
		t.Fatal(err)
	}
	return &g
}

// tree makes the tree that roots.py made.
func (g *golden) tree(t testing.TB) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range g.Files {
		write(t, filepath.Join(root, path), text)
	}
	for _, path := range g.Dirs {
		if err := os.MkdirAll(filepath.Join(root, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, to := range g.Links {
		if err := os.Symlink(strings.ReplaceAll(to, "ROOT", root),
			filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

func (g *golden) server(t testing.TB, root, variant string) *Server {
	t.Helper()
	o := Options{
		Roots: []Env{
			{"base", []string{root + "/one", root + "/two"}}, {"dev", []string{root + "/dev"}},
			{anyEnv, []string{root + "/any___env__"}},
		},
		FollowSymlinks: true, BufferSize: 4,
	}
	for option, v := range g.Variants[variant] {
		switch option {
		case "fileserver_followsymlinks":
			o.FollowSymlinks = v.(bool)
		case "fileserver_ignoresymlinks":
			o.IgnoreSymlinks = v.(bool)
		case "file_ignore_glob", "file_ignore_regex":
			var list []string
			for _, x := range v.([]any) {
				list = append(list, x.(string))
			}
			if option == "file_ignore_glob" {
				o.IgnoreGlob = list
			} else {
				o.IgnoreRegex = list
			}
		default:
			t.Fatalf("unknown option %s", option)
		}
	}
	s, err := New(o, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// plain writes a reply as the golden file does.
func plain(v any, root string) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, root, "ROOT")
	case []byte:
		return map[string]any{"bytes": string(v)}
	case []string:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i], root)
		}
		return out
	case []any:
		if len(v) == 10 {
			return "STAT"
		}
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i], root)
		}
		return out
	case value.Map:
		out := make(map[string]any)
		for _, p := range v {
			out[p.Key.(string)] = plain(p.Value, root)
		}
		return out
	}
	return v
}

func TestRepliesLikeSalt(t *testing.T) {
	t.Parallel()
	g := load(t)
	root := g.tree(t)
	servers := make(map[string]*Server)
	for variant := range g.Variants {
		servers[variant] = g.server(t, root, variant)
	}
	for _, c := range g.Cases {
		if path, _ := c.Load["path"].(string); c.Cmd == "_serve_file" &&
			path == "both?saltenv=dev" && c.Load["saltenv"] != "dev" {
			continue // Salt finds and hashes the file, but sends it empty; here it is sent
		}
		var l value.Map
		for k, v := range c.Load {
			if f, ok := v.(float64); ok {
				v = int64(f)
			}
			l = append(l, value.Pair{Key: k, Value: v})
		}
		reply, err := servers[c.Variant].Serve(context.Background(), c.Cmd, l)
		got := plain(reply, root)
		if err != nil {
			got = ""
		}
		if names, ok := reply.([]string); ok && c.Cmd == "_file_envs" {
			slices.Sort(names)
			got = plain(names, root)
		}
		// Salt's empty data is text in an absent reply and bytes at the end of a file; both are one
		// on the wire.
		if !reflect.DeepEqual(got, c.Reply) {
			t.Errorf("%s %s %v: got %v, Salt says %v", c.Variant, c.Cmd, c.Load, got, c.Reply)
		}
	}
}

func TestStat(t *testing.T) {
	t.Parallel()
	g := load(t)
	root := g.tree(t)
	s := g.server(t, root, "default")
	reply, err := s.Serve(context.Background(), "_file_find",
		value.Map{{Key: "path", Value: "hello.txt"}})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := reply.(value.Map).Get("stat")
	list := v.([]any)
	if len(list) != 10 || list[0] != int64(0o100644) || list[6] != int64(6) {
		t.Errorf("stat is %v", list)
	}
	if _, err := value.Pack(reply); err != nil {
		t.Error(err)
	}
}

// fetch asks for a file as a minion does and returns its content, its name and the number of
// requests.
func fetch(t *testing.T, s *Server, path string, level int64) (string, string, int) {
	t.Helper()
	var content []byte
	for n := 1; ; n++ {
		l := value.Map{{Key: "path", Value: path}, {Key: "saltenv", Value: "base"},
			{Key: "loc", Value: int64(len(content))}}
		if level >= 0 {
			l = l.Set("gzip", level)
		}
		reply, err := s.Serve(context.Background(), "_serve_file", l)
		if err != nil {
			t.Fatal(err)
		}
		m := reply.(value.Map)
		data := m.Bytes("data")
		used, compressed := m.Get("gzip")
		if len(data) == 0 {
			if compressed {
				t.Error("empty data with gzip")
			}
			return string(content), m.String("dest"), n
		}
		if compressed != (level > 0) || (compressed && used != level) {
			t.Errorf("gzip %d: reply says %v", level, used)
		}
		if compressed {
			r, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if data, err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
		content = append(content, data...)
	}
}

func TestChunks(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, err := New(Options{Roots: []Env{{"base", []string{root}}}, BufferSize: 100}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 99, 100, 101, 300, 301} {
		want := strings.Repeat("\x00\xffa", 200)[:size]
		write(t, filepath.Join(root, "sub", "f"), want)
		for _, level := range []int64{-1, 0, 1, 5, 9} {
			got, dest, n := fetch(t, s, "sub/f", level)
			if got != want || dest != "sub/f" || n != (size+99)/100+1 {
				t.Errorf("%d bytes, gzip %d: got %d as %q in %d requests", size, level, len(got),
					dest, n)
			}
		}
	}
	for _, l := range []value.Map{
		{{Key: "loc", Value: int64(-1)}}, {{Key: "loc", Value: "x"}},
		{{Key: "loc", Value: int64(0)}, {Key: "gzip", Value: int64(10)}},
		{{Key: "loc", Value: int64(0)}, {Key: "gzip", Value: "best"}},
	} {
		if _, err := s.Serve(context.Background(), "_serve_file",
			append(l, value.Pair{Key: "path", Value: "sub/f"},
				value.Pair{Key: "saltenv", Value: "base"})); err == nil {
			t.Errorf("%v is served", l)
		}
	}
}

func TestEnvironmentStaysInside(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "qa", "f"), "qa")
	write(t, filepath.Join(root, "feature", "x", "f"), "x")
	write(t, filepath.Join(filepath.Dir(root), "f"), "outside")
	s, err := New(Options{Roots: []Env{{anyEnv, []string{root + "/__env__"}}},
		FollowSymlinks: true}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for env, want := range map[string]string{
		"qa": root + "/qa/f", "feature/x": root + "/feature/x/f", "..": "", "../..": "",
		"qa/../..": "", "": "", "/": "", ".": "", "q\x00a": "", "qa/": "", anyEnv: "",
	} {
		f, _, err := s.find(t.Context(), "f", env)
		if f.path != want || err != nil {
			t.Errorf("environment %q serves %q, %v, want %q", env, f.path, err, want)
		}
	}
}

func TestHashFollowsChanges(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, err := New(Options{Roots: []Env{{"base", []string{root}}}, HashType: "md5"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "f")
	old := time.Now().Add(-time.Hour)
	ask := func() string {
		reply, err := s.Serve(context.Background(), "_file_hash",
			value.Map{{Key: "path", Value: "f"}, {Key: "saltenv", Value: "base"}})
		if err != nil {
			t.Fatal(err)
		}
		return reply.(value.Map).String("hsum")
	}
	for _, step := range []struct {
		content string
		mtime   time.Time
		want    string
	}{
		{"a", old, "0cc175b9c0f1b6a831c399e269772661"},
		{"b", old.Add(time.Second), "92eb5ffee6ae2fec3ad71c777531578f"},
		{"bb", old.Add(time.Second), "21ad0bd836b90d08f4cf640b4c298e7c"},
	} {
		write(t, path, step.content)
		if err := os.Chtimes(path, step.mtime, step.mtime); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := ask(); got != step.want {
				t.Errorf("hash of %q is %s, want %s", step.content, got, step.want)
			}
		}
	}
	if len(s.hashes) != 1 {
		t.Errorf("%d hashes kept", len(s.hashes))
	}
	// Just changed: not kept, for a second change might look the same.
	write(t, path, "x")
	ask()
	if got := s.hashes[path]; got.size != 2 {
		t.Errorf("kept the hash of a file that has just changed: %v", got)
	}
}

// TestNamesThatAreNoText: a list without them is one that minions can use; Salt's whole list fails.
func TestNamesThatAreNoText(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"a", "caf\xe9", "d\xff/b", "ünï/c"} {
		write(t, filepath.Join(root, name), "x")
	}
	if err := os.Symlink("a", filepath.Join(root, "l\xe4nk")); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	s, err := New(Options{FollowSymlinks: true,
		Roots: []Env{{Name: "base", Roots: []string{root}}}},
		slog.New(slog.NewTextHandler(&said, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := s.of("base")
	if want := []string{"a", "ünï/c"}; !slices.Equal(l.files, want) ||
		!slices.Equal(l.dirs, []string{"ünï"}) || len(l.links) != 0 {
		t.Errorf("files %q, folders %q, links %q", l.files, l.dirs, l.links)
	}
	if !strings.Contains(said.String(), "n=3") || !strings.Contains(said.String(), "caf") {
		t.Errorf("the log says %s", said.String())
	}
}

// TestListsFollowTheDisk: lists are made again when a folder has changed, and only then.
func TestListsFollowTheDisk(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, err := New(Options{Roots: []Env{{"base", []string{root}}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "d", "a"), "")
	old := time.Now().Add(-time.Minute)
	age := func() {
		for _, dir := range []string{root, filepath.Join(root, "d")} {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
		s.ClearListCache("")
	}
	later := func() { s.lists["base"].checked = time.Time{} }
	age()
	first := s.of("base")
	if later(); s.of("base") != first {
		t.Error("listed again although nothing changed")
	}
	write(t, filepath.Join(root, "d", "b"), "")
	if later(); !slices.Equal(s.of("base").files, []string{"d/a", "d/b"}) {
		t.Errorf("got %v after a file came", s.of("base").files)
	}
	age()
	s.of("base")
	if err := os.Remove(filepath.Join(root, "d", "a")); err != nil {
		t.Fatal(err)
	}
	if later(); !slices.Equal(s.of("base").files, []string{"d/b"}) {
		t.Errorf("got %v after a file went", s.of("base").files)
	}
	if got := s.ClearListCache("nosuch"); len(got) != 0 {
		t.Errorf("cleared %v", got)
	}
	if got := s.ClearListCache("base"); !slices.Equal(got, []string{"base"}) {
		t.Errorf("cleared %v", got)
	}
}

// What a link leads to changes without a trace in the link's folder.
func TestListsFollowLinks(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	s, err := New(Options{Roots: []Env{{"base", []string{root}}}, FollowSymlinks: true}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "d"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(root, old, old); err != nil {
		t.Fatal(err)
	}
	look := func() []string {
		if e := s.lists["base"]; e != nil {
			e.checked = time.Time{}
		}
		return s.of("base").files
	}
	if got := look(); !slices.Equal(got, []string{"link"}) {
		t.Errorf("got %v of a link to nothing", got)
	}
	first := s.of("base")
	if look(); s.of("base") != first {
		t.Error("listed again although nothing changed")
	}
	write(t, filepath.Join(outside, "d", "f"), "")
	if got := look(); !slices.Equal(got, []string{"link/f"}) {
		t.Errorf("got %v after the folder came", got)
	}
	if err := os.RemoveAll(filepath.Join(outside, "d")); err != nil {
		t.Fatal(err)
	}
	if got := look(); !slices.Equal(got, []string{"link"}) {
		t.Errorf("got %v after the folder went", got)
	}
}

// TestLook tells what came, went and changed of files that are not ignored, below a link too.
func TestLook(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), root); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Roots: []Env{{"base", []string{root}}}, IgnoreGlob: []string{"*.swp"},
		IgnoreRegex: []string{"/CVS/"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "c")
	write(t, a, "1")
	write(t, b, "1")
	if got, err := s.Look(t.Context()); err != nil || got.Added != nil {
		t.Fatalf("first look: %v %v", got, err)
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(b, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	write(t, c, "1")
	write(t, filepath.Join(root, "d.swp"), "1")
	write(t, filepath.Join(root, "CVS", "e"), "1")
	got, err := s.Look(t.Context())
	if err != nil || !slices.Equal(got.Added, []string{c}) ||
		!slices.Equal(got.Removed, []string{a}) || !slices.Equal(got.Changed, []string{b}) {
		t.Errorf("%v %v", got, err)
	}
	if v, _ := got.Data().Get("changed"); v != true {
		t.Error(got.Data())
	}
}

func TestLoopsAndPipes(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "d", "f"), "")
	if err := os.Symlink("..", filepath.Join(root, "d", "loop")); err != nil {
		t.Fatal(err)
	}
	mkfifo(t, filepath.Join(root, "pipe"))
	s, err := New(Options{Roots: []Env{{"base", []string{root}}}, FollowSymlinks: true}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.of("base").files; !slices.Equal(got, []string{"d/f", "pipe"}) {
		t.Errorf("got %v", got)
	}
	if _, ok, _ := s.find(t.Context(), "pipe", "base"); ok {
		t.Error("a pipe is served")
	}
	if _, _, err := open(filepath.Join(root, "pipe")); err == nil {
		t.Error("a pipe is opened")
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{HashType: "crc32"}, {IgnoreRegex: []string{"("}}} {
		if _, err := New(o, nil, nil); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func FuzzFind(f *testing.F) {
	g := load(f)
	root := g.tree(f)
	s := g.server(f, root, "nofollow")
	for _, c := range g.Cases {
		path, _ := c.Load["path"].(string)
		env, _ := c.Load["saltenv"].(string)
		f.Add(path, env)
	}
	f.Fuzz(func(t *testing.T, path, env string) {
		found, ok, _ := s.find(t.Context(), path, env)
		if !ok {
			return
		}
		real, err := filepath.EvalSymlinks(found.path)
		if err != nil || !strings.HasPrefix(real, root+"/") ||
			strings.HasPrefix(real, root+"/outside") {
			t.Fatalf("%q in %q leads to %q, %v", path, env, real, err)
		}
	})
}

// TestEndlessIgnoreRegex: a file of whose name file_ignore_regex can't decide is not served.
func TestEndlessIgnoreRegex(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	name := strings.Repeat("a", 64) + "!"
	for _, path := range []string{name, "b.txt"} {
		if err := os.WriteFile(filepath.Join(root, path), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Options{Roots: []Env{{Name: "base", Roots: []string{root}}},
		IgnoreRegex: []string{"(?=a)(a+)+$"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{name: false, "b.txt": true} {
		if _, _, found, err := s.Read("base", path); found != want || err != nil {
			t.Errorf("%.10s is served: %v, %v", path, found, err)
		}
	}
	if list := s.List("base"); !slices.Equal(list, []string{"b.txt"}) {
		t.Errorf("list %.100v", list)
	}
}
