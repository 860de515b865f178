package cli

import (
	"errors"
	"strings"
	"testing"
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
