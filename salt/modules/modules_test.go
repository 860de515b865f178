package modules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

func call1(t *testing.T, m *Modules, fun string, args []any, kwargs value.Map) (any, error) {
	t.Helper()
	return m.Call(t.Context(), Minion{ID: "web1"}, fun, args, kwargs)
}

// TestArguments: arguments that don't fit the parameters are refused in Python's words.
func TestArguments(t *testing.T) {
	t.Parallel()
	all := New(Deps{})
	for _, tt := range []struct {
		fun    string
		args   []any
		kwargs value.Map
		want   string
	}{
		{"nosuch.function", nil, nil, "no such function"},
		{"grains.get", nil, nil, "missing 1 required positional argument: 'key'"},
		{"grains.get", []any{"a", "b", "c", "d", "e"}, nil,
			"takes from 1 to 4 positional arguments but 5 were given"},
		{"grains.get", []any{"a"}, value.Map{{Key: "key", Value: "b"}},
			"got multiple values for argument 'key'"},
		{"grains.get", []any{"a"}, value.Map{{Key: "nosuch", Value: 1}},
			"got an unexpected keyword argument 'nosuch'"},
		{"cmd.run", []any{"echo 'a"}, nil, "No closing quotation"},
		{"cmd.run", []any{""}, nil, "empty command"},
		{"cmd.run", []any{"/no/such/program"}, nil, "Unable to run command '/no/such/program'"},
		{"cmd.run", []any{"/no/such/program"}, m("output_loglevel", "quiet"),
			"Unable to run command 'REDACTED': no such file or directory"},
		{"cp.get_file_str", []any{"http://x/y"}, nil, ""},
		{"hashutil.digest", []any{"x", "crc"}, nil, "Hash func 'crc' is not supported."},
	} {
		_, err := call1(t, all, tt.fun, tt.args, tt.kwargs)
		if (err == nil) != (tt.want == "") || err != nil &&
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s%v: %v, want %q", tt.fun, tt.args, err, tt.want)
		}
	}
	if _, err := call1(t, all, "nosuch.function", nil, nil); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	for name, want := range map[string]bool{"grains.get": true, "grains.": true, "grain.": false,
		"grains.nosuch": false, "": false} {
		if all.Has(t.Context(), name) != want {
			t.Errorf("has %q: %v", name, !want)
		}
	}
}

// TestOwnFunctionsAreListed: sys lists exactly the functions of this package.
func TestOwnFunctionsAreListed(t *testing.T) {
	t.Parallel()
	m := New(Deps{})
	for _, tt := range []struct {
		fun  string
		args []any
		want string
	}{
		{"sys.list_functions", []any{"sys"}, "[sys.list_functions sys.list_modules]"},
		{"sys.list_functions", []any{"s*.list_m*", "pillar.get"}, "[pillar.get sys.list_modules]"},
		{"sys.list_functions", []any{"nosuch"}, "[]"},
		{"sys.list_modules", []any{"sys", "nosuch"}, "[sys]"},
		{"sys.list_modules", []any{"s*.list_m*", "mine"}, "[mine sys]"},
		{"sys.list_functions", nil, fmt.Sprint(m.Names())},
	} {
		if v, err := call1(t, m, tt.fun, tt.args, nil); err != nil || fmt.Sprint(v) != tt.want {
			t.Errorf("%s%v: %v, %v", tt.fun, tt.args, v, err)
		}
	}
	if v, err := call1(t, m, "sys.list_modules", nil, nil); err != nil ||
		!strings.HasPrefix(fmt.Sprint(v), "[cmd config cp data ") {
		t.Error(v, err)
	}
	for _, fun := range []string{"sys.list_functions", "sys.list_modules"} {
		if v, err := call1(t, m, fun, []any{int64(1)}, nil); err == nil {
			t.Errorf("%s gave %v", fun, v)
		}
	}
}

// TestBounds: work that would take too long or is too large is refused.
func TestBounds(t *testing.T) {
	t.Parallel()
	m := New(Deps{})
	for _, bad := range []step{
		do("test.fib", int64(94)), do("test.collatz", int64(0)), do("test.collatz", int64(-7)),
		do("test.collatz", int64(1)<<60),
		do("file.seek_read", "/etc/passwd", int64(1)<<40, int64(0)),
		do("file.seek_read", "/dev/zero", int64(1), int64(0)),
		do("file.contains_regex", "/dev/zero", "x"), do("file.search", "/dev/zero", "x"),
		do("test.try", "nosuch.function", true),
	} {
		if v, err := m.Call(t.Context(), Minion{}, bad.fun, bad.args, nil); err == nil {
			t.Errorf("%s%v gave %v", bad.fun, bad.args, v)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, step := range []step{do("file.diskusage", "/etc"),
		do("file.grep", "/etc/passwd", "root"), do("test.try", "file.diskusage", false).with("path",
			"/etc")} {
		if v, err := m.Call(ctx, Minion{}, step.fun, step.args, step.kwargs); !errors.Is(err,
			context.Canceled) {
			t.Errorf("%s gave %v, %v", step.fun, v, err)
		}
	}
}

// TestCommandOptions: each option of a command has its effect.
func TestCommandOptions(t *testing.T) {
	t.Parallel()
	m := New(Deps{})
	kw := func(pairs ...any) value.Map {
		out := value.Map{{Key: "python_shell", Value: true}}
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, value.Pair{Key: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	tests := []struct {
		name, fun, cmd string
		kwargs         value.Map
		want           string
	}{
		{"code is fine", "cmd.retcode", "exit 3",
			kw("success_retcodes", []any{int64(2), int64(3)}), "0"},
		{"codes in a text", "cmd.retcode", "exit 3", kw("success_retcodes", "1, 3"), "0"},
		{"another code", "cmd.retcode", "exit 4", kw("success_retcodes", []any{int64(3)}), "4"},
		{"no code", "cmd.retcode", "exit 4", kw("success_retcodes", "x"),
			"success_retcodes must be a list of integers"},
		{"output is fine", "cmd.retcode", "echo all done; exit 5",
			kw("success_stdout", "done"), "0"},
		// joined with the output
		{"error is fine", "cmd.retcode", "echo all done >&2; exit 5",
			kw("success_stderr", []any{"x", "done"}), "5"},
		{"hidden", "cmd.run", "echo secret", kw("hide_output", true), ""},
		{"umask", "cmd.run", "umask", kw("umask", "027"), "0027"},
		{"no umask", "cmd.run", "umask", kw("umask", "9"), "Invalid umask: '9'"},
		{"half a second", "cmd.run", "sleep 60", kw("timeout", 0.5),
			"sleep 60 : Timed out after 0.5 seconds"},
		{"without a shell", "cmd.run", "sleep 60", value.Map{{Key: "timeout", Value: 0.5}},
			"['sleep', '60'] : Timed out after 0.5 seconds"},
		{"nobody", "cmd.run", "true", kw("runas", "no such user"),
			"User 'no such user' is not available"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v, err := m.Call(t.Context(), Minion{}, tt.fun, []any{tt.cmd}, tt.kwargs)
			got := value.Str(v)
			if err != nil {
				got = strings.TrimPrefix(err.Error(), tt.fun+": ")
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestCommandEnds: a command and its processes end at the timeout.
func TestCommandEnds(t *testing.T) {
	t.Parallel()
	m := New(Deps{})
	mark := filepath.Join(t.TempDir(), "mark")
	began := time.Now()
	line := "sh -c 'sleep 60; touch " + mark + "' & sleep 60"
	got, err := call1(t, m, "cmd.run", []any{line},
		value.Map{{Key: "python_shell", Value: true}, {Key: "timeout", Value: int64(1)}})
	if err != nil || got != line+" : Timed out after 1 seconds" {
		t.Fatal(got, err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Error("it took", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Call(ctx, Minion{}, "cmd.run", []any{"sleep 60"}, nil); err == nil {
		t.Error("a command ran without a context")
	}
}

func TestCommandOutputIsBounded(t *testing.T) {
	t.Parallel()
	_, err := call1(t, New(Deps{}), "cmd.run",
		[]any{fmt.Sprintf("head -c %d /dev/zero", maxCommandOutput+1)}, nil)
	if err == nil || !strings.Contains(err.Error(), "bytes of output") {
		t.Fatal(err)
	}
}

// TestQuietCommand: neither the log nor an error names a quiet command.
func TestQuietCommand(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	all := New(Deps{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for _, tt := range []struct {
		cmd, level, logged, err string
	}{
		{"/bin/false", "debug", "cmd=/bin/false", ""}, {"/bin/false", "quiet", "", ""},
		{fmt.Sprintf("head -c %d /dev/zero", maxCommandOutput+1), "quiet", "",
			"cmd.run: REDACTED: more than 33554432 bytes of output"},
		{"sleep 60", "quiet", "", "cmd.run: REDACTED: context canceled"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		if strings.HasPrefix(tt.cmd, "sleep") {
			cancel()
		}
		log.Reset()
		_, err := all.Call(ctx, Minion{ID: "web1"}, "cmd.run", []any{tt.cmd},
			m("output_loglevel", tt.level))
		cancel()
		if (err != nil || tt.err != "") && fmt.Sprint(err) != tt.err {
			t.Errorf("%s, %s: %v, want %q", tt.cmd, tt.level, err, tt.err)
		}
		if log.Len() > 0 != (tt.logged != "") || !strings.Contains(log.String(), tt.logged) {
			t.Errorf("%s, %s: the log says %q", tt.cmd, tt.level, &log)
		}
	}
}

// TestAnotherPillar: a question about another pillar than the present one is left to Salt's own
// functions, and never answered with the present one.
func TestAnotherPillar(t *testing.T) {
	t.Parallel()
	prod, from := m("pillarenv", "prod"), m("pillarenv", "prod", "pillarenv_from_saltenv", true)
	for _, tt := range []struct {
		opts value.Map
		call step
		want string // "" for an ErrOutside
	}{
		{prod, do("pillar.get", "a").with("pillarenv", "prod"), "1"},
		{prod, do("pillar.get", "a").with("pillarenv", "dev"), ""},
		{nil, do("pillar.get", "a").with("pillarenv", "dev"), ""},
		{prod, do("pillar.get", "a").with("saltenv", "dev"), "1"},
		{from, do("pillar.get", "a").with("saltenv", "dev"), ""},
		{from, do("pillar.fetch", "a").with("saltenv", "prod"), "1"},
		{prod, do("pillar.item", "a").with("pillarenv", "dev"), ""},
		{prod, do("pillar.item", "a", "b").with("pillarenv", "prod", "default", "x"), "[{a 1} {b x}]"},
		{prod, do("pillar.items").with("pillarenv", "dev"), ""},
		{prod, do("pillar.items", "a").with("pillarenv", "dev"), ""},
		{prod, do("pillar.items").with("pillar", m("a", int64(2))), ""},
		{prod, do("pillar.items", "a").with("pillar", m("a", int64(2))), "[{a 1}]"},
		{prod, do("pillar.items").with("unmask", true), "[{a 1}]"},
		{prod, do("pillar.items").with("nosuch", true),
			"items() got an unexpected keyword argument 'nosuch'"},
		{prod, do("pillar.ls").with("saltenv", "dev"), "[a]"},
		{from, do("pillar.ls").with("saltenv", "dev"), ""},
		{nil, do("pillar.get", "b"), ""},
		{m("pillar_raise_on_missing", true), do("pillar.get", "a"), "1"},
		{m("pillar_raise_on_missing", true), do("pillar.get", "b"), "'Pillar key not found: b'"},
		{m("pillar_raise_on_missing", true), do("pillar.get", "b", "x"), "x"},
	} {
		v, err := New(Deps{}).Call(t.Context(), Minion{Pillar: m("a", int64(1)), Opts: tt.opts},
			tt.call.fun, tt.call.args, tt.call.kwargs)
		got := fmt.Sprint(v)
		if errors.Is(err, ErrOutside) {
			got = ""
		} else if err != nil {
			got = strings.TrimPrefix(err.Error(), tt.call.fun+": ")
		}
		if got != tt.want {
			t.Errorf("%s %v %v with %v: %q, want %q", tt.call.fun, tt.call.args, tt.call.kwargs,
				tt.opts, got, tt.want)
		}
	}
}

// TestSDBFile: a key must not lead out of the profile's folder.
func TestSDBFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for path, text := range map[string]string{"store/a": "value\n", "outside": "secret"} {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", filepath.Join(root, "store/link")); err != nil {
		t.Fatal(err)
	}
	m := New(Deps{SDB: func(string) (value.Map, bool) {
		return value.Map{{Key: "driver", Value: "file"},
			{Key: "dir", Value: filepath.Join(root, "store")}}, true
	}})
	for key, want := range map[string]any{"a": "value", "nosuch": nil} {
		if v, err := call1(t, m, "sdb.get", []any{"sdb://s/" + key}, nil); v != want || err != nil {
			t.Errorf("%s: %v %v", key, v, err)
		}
	}
	for _, key := range []string{"../outside", "link", "/etc/passwd"} {
		if v, err := call1(t, m, "sdb.get", []any{"sdb://s/" + key}, nil); err == nil {
			t.Errorf("%s gave %v", key, v)
		}
	}
}

// TestSDBYAML: options of a profile that change its values are left to Salt's driver.
func TestSDBYAML(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values")
	if err := os.WriteFile(file, []byte("a: {b: -----BEGIN PGP MESSAGE-----}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	merge := value.Map{{Key: "strategy", Value: "overwrite"}}
	for _, tt := range []struct {
		option    string
		set       any
		key, want any
		outside   bool
	}{
		{"gpg", true, "a:b", nil, true}, {"merge", merge, "a:b", nil, true},
		{"gpg", false, "a:b", "-----BEGIN PGP MESSAGE-----", false},
		{"merge", value.Map{}, "a:c", nil, false}, {"gpg", true, "", "sdb://s/", false},
	} {
		m := New(Deps{SDB: func(string) (value.Map, bool) {
			return value.Map{{Key: "driver", Value: "yaml"}, {Key: "files", Value: []any{file}},
				{Key: tt.option, Value: tt.set}}, true
		}})
		v, err := call1(t, m, "sdb.get", []any{fmt.Sprint("sdb://s/", tt.key)}, nil)
		if v != tt.want || errors.Is(err, ErrOutside) != tt.outside || (err != nil) != tt.outside {
			t.Errorf("%s %v: %q gave %v, %v", tt.option, tt.set, tt.key, v, err)
		}
	}
}

func TestShellSplit(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`a  b`: `["a" "b"]`, `a 'b c' d`: `["a" "b c" "d"]`, `"a \"b\" \n"`: `["a \"b\" \\n"]`,
		`a\ b ''`: `["a b" ""]`, `x"y"'z'`: `["xyz"]`, "": `[]`,
	} {
		if got, err := shellSplit(in); fmt.Sprintf("%q", got) != want || err != nil {
			t.Errorf("%s: %q %v", in, got, err)
		}
	}
}
