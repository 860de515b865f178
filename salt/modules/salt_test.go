package modules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// step is a call of a function. DIR and URL stand for a folder and a web server.
type step struct {
	fun    string
	args   []any
	kwargs value.Map
	worded bool   // the error must have Salt's words
	but    string // a key of the result that may differ
	first  bool   // only the first element of the result must be equal
	// The keys of the result must be in Salt's order.
	ordered bool
}

func do(fun string, args ...any) step { return step{fun: fun, args: args} }

func (s step) with(pairs ...any) step {
	for i := 0; i < len(pairs); i += 2 {
		s.kwargs = append(s.kwargs, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return s
}

func m(pairs ...any) value.Map { return step{}.with(pairs...).kwargs }

// steps are called in this order.
func steps() []step {
	list := []step{
		do("data.load"), do("data.get", "a"), do("data.update", "a", "x"),
		do("data.update", "b", []any{int64(1), "two"}), do("data.get", "a"),
		do("data.get", "nosuch", "fallback"),
		do("data.get", []any{"a", "nosuch", "b"}), do("data.get", []any{"a", "nosuch"}, "d"),
		do("data.keys"), do("data.values"), do("data.items"), do("data.has_key", "a"),
		do("data.has_key", "z"),
		do("data.cas", "a", "y", "wrong"), do("data.cas", "z", "y", "x"),
		do("data.update", "map", m("a", int64(1), "b", m("c", int64(2), "d", int64(3)))),
		do("data.cas", "map", "y", m("b", m("d", 3.0, "c", int64(2)), "a", int64(1))),
		do("data.get", "map"), do("data.cas", "a", "y", "x"), do("data.get", "a"), do("data.pop", "a"),
		do("data.pop", "a"), do("data.pop", "a", "none"),
		do("data.dump", m("eggs", "spam", "n", m("m", int64(1)))), do("data.load"),
		do("data.clear"), do("data.load"), do("data.keys"),
		do("hashutil.base64_encodefile", "DIR/hosts"), do("config.dot_vals", "own"),
		do("config.dot_vals", "nosuch"),
	}
	family, release := m("Debian", m("a", m("x", int64(1))), "base",
		m("a", m("y", int64(2)), "b", int64(3))), m("12*", m("new", true), "*1", m("old", true))
	list = append(list, // unusual input of filter_by
		do("grains.filter_by", family), do("grains.filter_by", family).with("base", "base"),
		do("grains.filter_by", family).with("base", "nosuch"),
		do("grains.filter_by", family).with("grain", "nosuch"),
		do("grains.filter_by", family).with("grain", "nosuch", "base", "base"),
		do("grains.filter_by", release).with("grain", "osrelease"),
		do("grains.filter_by", m("*", int64(1))).with("grain", "nosuch"),
		do("grains.filter_by", m("", int64(1), "None", int64(2))).with("grain", "nosuch"),
		do("grains.filter_by", m("Debian", "text", "base", m("a", int64(1)))).with("base", "base"),
		do("grains.filter_by", m("Debian", "text")).with("merge", m("a", int64(1))),
		do("grains.filter_by", m("Debian", nil)).with("merge", m("a", int64(1))),
		do("grains.filter_by", family).with("merge", []any{int64(1)}),
		do("grains.filter_by", m("db", int64(1), "web", int64(2))).with("grain", "roles"),
		do("grains.filter_by", []any{int64(1)}),
		do("grains.filter_by", m("Debian", int64(1), "x", int64(2)), "nosuch").with("default", "x"),
		do("grains.item", "host", "fqdn", "os").with("sanitize", true), do("grains.item", "host"),
		do("grains.items").with("sanitize", true), do("pillar.raw", "nosuch"),
		do("pillar.raw", "master"),
	)
	for _, v := range []any{m("a", []any{m("x", []any{}), value.Map{}, nil}, "b",
		m("c", m("d", int64(1)))), []any{int64(1), "ü", 1.5, true}, "text", "two\nlines", nil,
		m("n", []any{}), []any{[]any{int64(1)}, []any{int64(2), []any{"x: y"}}}} {
		list = append(list, do("slsutil.serialize", "yaml", v), do("slsutil.serialize", "json", v))
		for _, flow := range []any{true, false} {
			list = append(list, do("slsutil.serialize", "yaml", v).with("default_flow_style", flow,
				"allow_unicode", true, "indent", int64(4)))
		}
		list = append(list, do("slsutil.serialize", "json", v).with("indent", int64(2),
			"sort_keys", true))
	}
	for _, name := range []string{"own_map", "own_list", "own_text", "own_none", "own_master",
		"own_pillar", "own_grain", "own_sdb", "hosts.file", "virt", "ldap.attrs", "nosuch"} {
		for _, fun := range []string{"config.get", "config.option", "config.merge"} {
			if fun == "config.merge" && name == "own_map" {
				continue // Salt's changes the pillar; see below
			}
			list = append(list, do(fun, name), do(fun, name, "x"), do(fun, name, nil),
				do(fun, name).with("omit_opts", true),
				do(fun, name).with("omit_opts", true, "omit_pillar", true),
				do(fun, name).with("omit_opts", true, "omit_master", true))
		}
		list = append(list, do("config.get", name).with("merge", "recurse"),
			do("config.get", name).with("merge", "overwrite"),
			do("config.get", name).with("omit_opts", true, "omit_grains", true),
			do("config.option", name).with("omit_all", true),
			do("config.option", name).with("omit_opts", true, "omit_grains", true))
	}
	for _, glob := range []string{"own_*", "own_map", "ldap.*", "nosuch*", "[hms]*.*"} {
		list = append(list, do("config.option", glob).with("wildcard", true),
			do("config.option", glob, "x").with("wildcard", true),
			do("config.option", glob).with("wildcard", true, "omit_opts", true, "omit_pillar", true))
		for _, omitted := range []string{"omit_all", "omit_opts"} { // Salt's options have no order
			s := do("config.option", glob).with("wildcard", true, omitted, true)
			s.ordered = true
			list = append(list, s)
		}
	}
	list = append(list, do("config.get", "virt:images"), do("config.get", "own_map:a"),
		do("config.get", "own_map|b").with("merge", "recurse", "delimiter", "|"),
		do("config.merge", "own_map"))
	// wrong types and forms
	for _, v := range []any{"", "x", "ü", nil, int64(5), "!!", "abc", "YWJj", "YQ==", "Y Q=\n=",
		"YWI=", "YWI=YWI=", "=", "a=b=", []any{"a"}} {
		list = append(list, do("hashutil.digest", v), do("hashutil.md5_digest", v),
			do("hashutil.base64_b64encode", v), do("hashutil.base64_b64decode", v),
			do("hashutil.base64_decodestring", v), do("hashutil.hmac_compute", v, "s"),
			do("hashutil.hmac_compute", "s", v),
			do("hashutil.hmac_signature", "a", "b", v), do("environ.get", v),
			do("environ.item", v), do("file.join", "a", v),
			do("file.join", v, "/b", "c/../d", "e/", "f"), do("file.normpath", "//a/./b/"),
			do("sdb.get", v))
	}
	list = append(list,
		do("sdb.get", "sdb://nosuch/x"), do("sdb.get", "sdb://nosuch/x").with("strict", true),
		do("file.access", "/", int64(4)), do("file.access", "/", int64(3)),
		do("file.directory_exists", "~"), do("file.join"),
		do("cp.get_file_str", "DIR/hosts"), do("cp.hash_file", "DIR/hosts"),
	)
	for _, c := range []step{ // the ends of commands
		do("cmd.run", "echo out; exit 3"), do("cmd.run", "exit 3").with("raise_err", true),
		do("cmd.run", "echo $HOME $USER; pwd").with("runas", "nobody"),
		do("cmd.run", "id -G").with("runas", "nobody"),
		do("cmd.run", "id").with("group", "nosuch-group"),
		do("cmd.run", "id").with("runas", "nosuch-user"), do("cmd.run", "printf '\\377x'"),
		do("cmd.run", "printf '\\377x'").with("output_encoding", "latin-1"),
		do("cmd.run", "true").with("timeout", "x"), do("cmd.run", "true").with("shell", "bash"),
		do("cmd.run", "cat").with("stdin", `a\nb`),
		do("cmd.run", "cat").with("stdin", `a\nb`, "stdin_raw_newlines", true),
		do("cmd.run_stdout", "echo a >&2"),
		do("cmd.run_stdout", "echo a >&2").with("redirect_stderr", true),
		do("cmd.run_stderr", "echo a >&2"), do("cmd.run", "basename $0"),
		do("cmd.run", "echo a; echo b >&2").with("redirect_stderr", false),
		do("cmd.shell", "echo a; echo b >&2").with("redirect_stderr", false),
		do("cmd.run", "echo a; echo b >&2; exit 3").with("raise_err", true).refused(),
		do("cmd.run", "echo a; echo b >&2; exit 3").with("raise_err", true, "redirect_stderr",
			false).refused(),
		do("cmd.shell", "echo a; exit 3").with("raise_err", true, "hide_output", true).refused(),
		do("cmd.run", "echo a; exit 3").with("raise_err", true, "ignore_retcode", true),
		do("cmd.run", "echo a; exit 3").with("raise_err", true, "output_loglevel", "quiet"),
		do("cmd.run_all", "echo a; exit 3").with("raise_err", true).except("pid"),
		do("cmd.run_stdout", "echo a; exit 3").with("raise_err", true),
		do("cmd.retcode", "exit 3").with("raise_err", true),
		do("cmd.run", "umask").with("umask", "0").refused(),
		do("cmd.run", "umask").with("umask", int64(0)).refused(),
		do("cmd.run", "umask").with("umask", "0o27").refused(),
		do("cmd.run", "umask").with("umask", int64(27)),
		do("cmd.run", "pwd").with("cwd", "tree").refused(),
		do("cmd.run", "pwd").with("cwd", "DIR/nosuch").refused(),
		do("cmd.run", "pwd").with("cwd", ""), do("cmd.run", "echo $NOTIFY_SOCKET"),
		do("cmd.run", "echo $NOTIFY_SOCKET").with("env", m("NOTIFY_SOCKET", "own")),
	} {
		if _, given := c.kwargs.Get("shell"); !given {
			c = c.with("python_shell", true)
		}
		list = append(list, c)
	}
	for _, path := range []string{"text", "json", "yaml", "gone", "empty", "move", "latin",
		"zipped"} {
		list = append(list, do("http.query", "URL/"+path),
			do("http.query", "URL/"+path).with("status", true, "text", true))
	}
	for _, kind := range []string{"json", "yaml", "text"} {
		list = append(list, do("http.query", "URL/"+kind).with("decode", true))
	}
	return append(list,
		do("http.query", "URL/json").with("decode", true, "decode_type", "yaml"),
		do("http.query", "URL/json").with("decode", true, "decode_type", "plain"),
		do("http.query", "URL/json").with("decode", true, "decode_type", "nosuch"),
		do("http.query", "URL/gone").with("raise_error", false, "status", true),
		do("http.query", "URL/echo?a=1").with("params", m("b", "x y", "c", "ü&=")),
		do("http.query", "URL/echo").with("method", "POST", "data", "some data"),
		do("http.query", "URL/echo").with("method", "POST", "data", m("k", "v w")),
		do("http.query", "URL/echo").with("method", "PUT", "data", "{}", "header_dict",
			m("Content-Type", "application/json", "X-Own", "1")),
		do("http.query", "URL/echo").with("header_list", []any{"X-Own: two", "nonsense"}),
		do("http.query", "URL/echo").with("username", "me", "password", "secret"),
		do("http.query", "URL/echo").with("agent", "own/1"),
		do("http.query", "http://127.0.0.1:1/").with("status", true),
		do("http.query", "http://127.0.0.1:1/"),
	)
}

// server gives every answer that steps need.
func server(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say := func(kind, text string) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, text)
		}
		switch r.URL.Path {
		case "/text":
			say("text/plain; charset=utf-8", "plain ü\n")
		case "/json":
			say("application/json", `{"a": [1, 2.5, null, true], "b": {"c": "d"}}`)
		case "/yaml":
			say("application/yaml", "a: [1, two]\nb: yes\n")
		case "/latin":
			say("text/plain; charset=utf-8", "é")
		case "/zipped":
			say("text/plain", "not zipped")
		case "/empty":
			w.WriteHeader(http.StatusOK)
		case "/move":
			http.Redirect(w, r, "/text", http.StatusFound)
		case "/echo":
			var b bytes.Buffer
			if _, err := b.ReadFrom(r.Body); err != nil {
				t.Error(err)
			}
			say("text/plain", fmt.Sprint(r.Method, " ", r.URL.RequestURI(), " ",
				r.Header.Get("Content-Type"), " ", r.Header.Get("X-Own"), " ",
				r.Header.Get("Authorization"), " ", strings.TrimPrefix(r.UserAgent(),
					"Salt/"), " ", b.String()))
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, "not here")
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// saltGrains are those of testdata/calls.py.
func saltGrains() value.Map {
	return m("id", "web1", "os_family", "Debian", "osrelease", "12", "host", "web1", "fqdn",
		"web1.example", "os", "Debian", "roles", []any{"web", "db"}, "serialnumber", "12345678",
		"kernel", "Linux", "own_grain", "g", "own_map", m("g", int64(4)))
}

// memory is a Datastore.
type memory struct{ kept value.Map }

func (d *memory) Load(context.Context) (value.Map,
	error) {
	return append(value.Map{}, d.kept...), nil
}
func (d *memory) Dump(_ context.Context, data value.Map) error {
	d.kept = data
	return nil
}

// plain converts a value to the types of JSON.
func plain(v any) any {
	switch v := v.(type) {
	case value.Map:
		out := map[string]any{}
		for _, p := range v {
			out[text(p.Key)] = plain(p.Value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	case []byte:
		return string(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return v
}

// TestCallsAreSalts makes the same calls to Salt's functions and to ours.
func TestCallsAreSalts(t *testing.T) {
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	t.Setenv("NOTIFY_SOCKET", "/run/systemd/notify")
	dir, url := t.TempDir(), server(t)
	if err := os.WriteFile(filepath.Join(dir, "hosts"),
		[]byte("# hosts\n127.0.0.1 localhost\n10.0.0.1\tone one.example\n\n10.0.0.1 again\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	fill := func(v any) any {
		if s, ok := v.(string); ok {
			return strings.NewReplacer("DIR", dir, "URL", url).Replace(s)
		}
		return v
	}
	fillTree(t, dir)
	var calls []any
	list := slices.Concat(everydaySteps(), steps(), fileSteps(), plainSteps(), placeSteps())
	for i, s := range list {
		for j, a := range s.args {
			list[i].args[j] = fill(a)
		}
		for j, p := range s.kwargs {
			list[i].kwargs[j].Value = fill(p.Value)
		}
		calls = append(calls, []any{s.fun, append([]any{}, plain(list[i].args).([]any)...),
			plain(append(value.Map{}, s.kwargs...))})
	}
	asked, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(venvs, "salt-3008.3", "bin", "python3"),
		"testdata/calls.py", dir)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(asked), os.Stderr
	said, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var answers []struct {
		Value       any
		Keys        []any // of a map
		Error, Text string
	}
	if err := json.Unmarshal(said, &answers); err != nil || len(answers) != len(list) {
		t.Fatalf("%d answers of %d: %v", len(answers), len(list), err)
	}
	modules := New(Deps{Version: "3008.3",
		SDB: func(profile string) (value.Map, bool) {
			return m("driver", "env"), profile == "own_profile"
		},
		Files: folders{"base": dir + "/tree",
			"dev": dir + "/dev"}, Datastore: &memory{},
		Render: func(_ context.Context, _ Minion, _, text, _ string, _ value.Map) (any, error) {
			v, err := yaml11.Load([]byte(text))
			return v, err
		}})
	three := int64(3)
	who := Minion{ID: "web1", Grains: saltGrains(),
		Pillar: m("master", m("own.b", int64(2), "own_map", m("a", three, "c", three), "own_list",
			[]any{three}, "own_text", "master", "own_master", "m"),
			"own_map", m("a", int64(2), "b", int64(2)), "own_list", []any{int64(2)}, "own_text",
			"pillar", "own_pillar", "p"),
		Opts: m("own.a", int64(1), "own_map", m("a", int64(1)), "own_list", []any{int64(1)},
			"own_text", "opts", "own_none", nil, "own_sdb", "sdb://own_profile/PATH", "own_profile",
			m("driver", "env"), "id", "web1", "pillar_roots",
			m("base", []any{dir + "/pillar", dir + "/more"}, "dev", []any{dir + "/dev"}))}
	for i, s := range list {
		got, err := modules.Call(t.Context(), who, s.fun, s.args, s.kwargs)
		ours := plain(got)
		switch {
		case s.first && err == nil:
			ours, answers[i].Value = ours.([]any)[0], answers[i].Value.([]any)[0]
		case s.but != "":
			delete(ours.(map[string]any), s.but)
			delete(answers[i].Value.(map[string]any), s.but)
		}
		if s.worded && (err == nil || err.Error() != s.fun+": "+answers[i].Text) {
			t.Errorf("%s %v %v:\nours   %v\nSalt's %s", s.fun, s.args, s.kwargs, err,
				answers[i].Text)
		}
		if (err != nil) != (answers[i].Error != "") || err == nil &&
			!reflect.DeepEqual(ours, answers[i].Value) {
			t.Errorf("%s %v %v:\nours   %v %v\nSalt's %v %s", s.fun, s.args, s.kwargs, plain(got),
				err, answers[i].Value, answers[i].Error+" "+answers[i].Text)
		}
		if m, ok := got.(value.Map); ok && s.ordered && !slices.Equal(keys(m), answers[i].Keys) {
			t.Errorf("%s %v %v: keys\nours   %v\nSalt's %v", s.fun, s.args, s.kwargs, keys(m),
				answers[i].Keys)
		}
	}
}

// TestHeadersAreSorted: two equal answers give two equal texts.
func TestHeadersAreSorted(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"X-C", "X-A", "X-F", "X-D", "X-B", "X-E"} {
			w.Header().Set(name, "1")
		}
	}))
	defer s.Close()
	v, err := call1(t, New(Deps{}), "http.query", []any{s.URL}, m("headers", true))
	if err != nil {
		t.Fatal(err)
	}
	headers, _ := v.(value.Map).Get("headers")
	var names []string
	for _, name := range keys(headers.(value.Map)) {
		names = append(names, name.(string))
	}
	if len(names) < 6 || !slices.IsSorted(names) {
		t.Error(names)
	}
}

// TestQueryIsBounded: an answer that is too large or never comes is an error. A missing
// feature is refused by name.
func TestQueryIsBounded(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			block := make([]byte, 1<<20)
			for range maxBody>>20 + 1 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			select {
			case <-hung:
			case <-r.Context().Done():
			}
		}
	}))
	defer s.Close()
	defer close(hung)
	ask := func(ctx context.Context, step step) (any, error) {
		return New(Deps{}).Call(ctx, Minion{}, step.fun, step.args, step.kwargs)
	}
	if _, err := ask(t.Context(), do("http.query", s.URL+"/large")); err == nil ||
		!strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
	if v, err := ask(t.Context(), do("http.query", s.URL+"/loop")); err != nil ||
		!strings.Contains(fmt.Sprint(v), "302") {
		t.Error(v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := ask(ctx, do("http.query", s.URL+"/never")); errors.Is(err, ErrUnknown) ||
		!strings.Contains(fmt.Sprint(v, err), "canceled") {
		t.Error(v, err)
	}
	for _, bad := range []step{do("http.query", "file:///etc/passwd"),
		do("http.query", s.URL).with("cookies", true), do("http.query", s.URL).with("data_file",
			"/etc/passwd")} {
		if _, err := ask(t.Context(), bad); err == nil {
			t.Errorf("%v was done", bad)
		}
	}
}
