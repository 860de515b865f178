package cli

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"clustermaster/config"
	"clustermaster/value"
)

// TestUsageErrors expects the texts that Salt 3008.3 printed for the same words.
func TestUsageErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		p    *parser
		args []string
		want string
	}{
		{"unknown", saltParser(), []string{"--nosuch"}, "no such option: --nosuch"},
		{"unknown short", saltParser(), []string{"-u", "root", "a", "b"}, "no such option: -u"},
		{"negative number", saltParser(), []string{"a", "b", "-1"}, "no such option: -1"},
		{"not a number", saltParser(), []string{"-t", "abc", "a", "b"},
			"option -t: invalid integer value: 'abc'"},
		{"joined, not a number", saltParser(), []string{"-tabc"},
			"option -t: invalid integer value: 'abc'"},
		{"no value", saltParser(), []string{"-t"}, "-t option requires 1 argument"},
		{"no value, long", saltParser(), []string{"--out"}, "--out option requires 1 argument"},
		{"flag with value", saltParser(), []string{"--static=1"},
			"--static option does not take a value"},
		{"ambiguous", saltParser(), []string{"--ou", "json"},
			"ambiguous option: --ou (--out, --out-file, --out-file-append, --out-indent, --output, --output-diff, --output-file, --output-file-append, --output-indent?)"},
		{"not a float", saltParser(), []string{"--batch-wait", "x"},
			"option --batch-wait: invalid floating-point value: 'x'"},
		{"level", saltParser(), []string{"-l", "loud"},
			"option -l: invalid choice: 'loud' (choose from 'all', 'debug', 'error', 'critical', 'garbage', 'info', 'profile', 'quiet', 'trace', 'warning')"},
		{"bare preserve", saltKeyParser(), []string{"--preserve-minions"},
			"--preserve-minions option requires 1 argument"},
		{"no verbose", saltRunParser(), []string{"-v", "x"}, "no such option: -v"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := tt.p.parse(tt.args)
			var wrong usageError
			if !errors.As(err, &wrong) || err.Error() != tt.want {
				t.Errorf("parse(%q): error %v, want %s", tt.args, err, tt.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		args     []string
		operands string
		check    func(v values) bool
	}{
		{"options anywhere", []string{"*", "-t", "9", "test.ping", "--static", "x"},
			"*|test.ping|x", func(v values) bool {
				return v.integer("timeout", 0) == 9 &&
					v.on("static")
			}},
		{"joined short ones", []string{"-vst9", "a", "b"}, "a|b",
			func(v values) bool {
				return v.on("verbose") && v.on("static") &&
					v.integer("timeout", 0) == 9
			}},
		{"double dash", []string{"a", "--", "-t", "b"}, "a|-t|b",
			func(v values) bool { return !v.given("timeout") }},
		{"single dash", []string{"a", "-", "b"}, "a|-|b", func(values) bool { return true }},
		{"shortened", []string{"--verb", "--time=3", "a"}, "a",
			func(v values) bool { return v.on("verbose") && v.integer("timeout", 0) == 3 }},
		{"exact wins", []string{"--out", "json", "a"}, "a",
			func(v values) bool { return v.text("output") == "json" }},
		{"value like an option", []string{"--out", "-t", "a"}, "a",
			func(v values) bool { return v.text("output") == "-t" }},
		{"negative indent", []string{"--out-indent=-1", "a"}, "a",
			func(v values) bool { return v.integer("output_indent", 0) == -1 }},
		{"hex", []string{"-t", "0x10", "a"}, "a",
			func(v values) bool { return v.integer("timeout", 0) == 16 }},
		{"last wins", []string{"-t1", "-t2"}, "",
			func(v values) bool { return v.integer("timeout", 0) == 2 }},
		{"keyword", []string{"a", "f", "x=--static"}, "a|f|x=--static",
			func(v values) bool { return !v.on("static") }},
		{"off", []string{"--hide-timeout"}, "",
			func(v values) bool { return v.given("show_timeout") && !v.on("show_timeout") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v, operands, err := saltParser().parse(tt.args)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(operands, "|"); got != tt.operands || !tt.check(v) {
				t.Errorf("parse(%q) = %v %q, want operands %q", tt.args, v.set, got, tt.operands)
			}
		})
	}
}

// TestOptionNamesAreUnique: no two options of a command share a short or long name.
func TestOptionNamesAreUnique(t *testing.T) {
	t.Parallel()
	for _, p := range []*parser{saltParser(), saltKeyParser(), saltRunParser(), saltCPParser()} {
		seen := map[string]bool{}
		for _, o := range p.options {
			for _, n := range strings.Fields(o.names) {
				if seen[n] {
					t.Errorf("%s: option %s occurs twice", p.prog, n)
				}
				seen[n] = true
			}
			if o.help == "" || !strings.HasSuffix(o.help, ".") &&
				!strings.HasSuffix(o.help, "'.'.") {
				t.Errorf("%s: option %s has no sentence of help", p.prog, o.names)
			}
		}
	}
}

func TestCompound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, funs, separator string
		args                  []string
		want                  string // groups as [a b][c], or the error
	}{
		{"alone", "a.x,b.y,c.z", "", []string{"1", ",", "2", "3", ",", "4"}, "[1][2 3][4]"},
		{"no arguments", "test.ping,test.echo", "", []string{",", "hi"}, "[][hi]"},
		{"inside", "a.x,b.y", "", []string{"1,2"}, "[1][2]"},
		{"inside and blank", "a.x,b.y", "", []string{"1,", "2"}, "[1][2]"},
		{"own separator", "a.x,b.y", "|", []string{"1,1", "|", "2"}, "[1,1][2]"},
		{"too few", "a.x,b.y", "", []string{"1"},
			"Cannot execute compound command without defining all arguments."},
		{"too many", "a.x,b.y", "", []string{"1,2,3"},
			"Cannot execute compound command with more arguments than commands."},
	}
	for _, tt := range tests {
		_, groups, err := compound(tt.funs, tt.args, tt.separator)
		got := ""
		for _, g := range groups {
			got += "[" + strings.Join(g, " ") + "]"
		}
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("-vt5\x00--out=json\x00--\x00-x")
	f.Fuzz(func(t *testing.T, line string) {
		for _, p := range []*parser{saltParser(), saltKeyParser(), saltRunParser()} {
			_, _, err := p.parse(strings.Split(line, "\x00"))
			var wrong usageError
			if err != nil && !errors.As(err, &wrong) {
				t.Errorf("parse(%q): %v is not a usage error", line, err)
			}
		}
	})
}

// fileOptions are an option of the configuration for each of salt's that it may set.
var fileOptions = map[string]any{
	"async": true, "batch": int64(2), "batch_safe_limit": int64(3), "batch_safe_size": "10%",
	"batch_wait": 0.5, "delimiter": "|", "eauth": "pam", "executor_opts": value.Map{{Key: "a",
		Value: int64(1)}}, "failhard": true, "metadata": value.Map{{Key: "who", Value: "you"}},
	"mktoken": true, "module_executors": []any{"sudo"}, "password": config.Secret("pw"),
	"progress": true, "return": []any{"mysql", "smtp"}, "return_config": "other",
	"return_kwargs": value.Map{{Key: "b", Value: true}}, "start_event": true, "static": true,
	"subset": int64(4), "username": "carol", "verbose": true,
}

// TestOptionsOfTheFile: an option that is not on the command line has the value of the
// configuration; a Saltfile's and the command line's come first.
func TestOptionsOfTheFile(t *testing.T) {
	t.Parallel()
	p, o := saltParser(), &config.Options{Extra: fileOptions}
	v := values{set: map[string]any{}}
	if err := p.fromFile(v, o); err != nil {
		t.Fatal(err)
	}
	want := maps.Clone(fileOptions)
	want["batch"], want["batch_safe_limit"], want["subset"], want["password"] = "2", 3, 4, "pw"
	if !reflect.DeepEqual(v.set, want) {
		t.Errorf("got\n%v\nwant\n%v", v.set, want)
	}
	env, _, _ := newEnv(nil, "")
	r := saltRun{env: env, opts: o, v: v}
	if _, err := r.read([]string{"*", "test.ping"}, "glob"); err != nil || r.job.Ret != "mysql,smtp" {
		t.Errorf("returners %q, %v", r.job.Ret, err)
	}
	for key, want := range map[string]any{
		"ret_kwargs": fileOptions["return_kwargs"], "ret_config": "other", "delimiter": "|",
		"metadata": fileOptions["metadata"], "executor_opts": fileOptions["executor_opts"],
		"module_executors": fileOptions["module_executors"], "start_event": true,
	} {
		if got, _ := r.job.Kwargs.Get(key); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	v, _, err := p.parse([]string{"-b", "1", "--batch-wait=7", "--batch-safe-limit", "0"})
	if err != nil || p.fromFile(v, o) != nil || v.text("batch") != "1" || v.float("batch_wait") != 7 ||
		v.integer("batch_safe_limit", 9) != 0 || !v.on("static") {
		t.Errorf("on the command line: %v, %v", v.set, err)
	}
	v = values{set: map[string]any{}}
	err = p.fromFile(v, &config.Options{ConfFile: "/etc/salt/master",
		Extra: map[string]any{"batch_wait": "long"}})
	if err == nil || err.Error() != "/etc/salt/master: option batch_wait: invalid floating-point value: 'long'" {
		t.Errorf("no number: %v", err)
	}
}
