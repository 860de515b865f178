package reactor

import (
	"fmt"
	"strings"
	"testing"

	"clustermaster/salt/function"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// high reads an SLS file without templates.
func high(t testing.TB, text string) value.Map {
	t.Helper()
	v, err := yaml11.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m, _ := v.(value.Map)
	if m, err = pad(m); err != nil {
		t.Fatal(err)
	}
	for i, e := range m {
		if body, ok := e.Value.(value.Map); ok {
			m[i].Value = body.Set("__sls__", "/x.sls")
		}
	}
	return m
}

func show(c chunk) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", c.state, c.fun)
	for _, p := range c.Map {
		switch p.Key {
		case "state", "fun", "__sls__", "__id__":
		case "name":
			if p.Value != c.id {
				fmt.Fprintf(&b, " name=%s", value.Repr(p.Value))
			}
		default:
			fmt.Fprintf(&b, " %s=%s", p.Key, value.Repr(p.Value))
		}
	}
	return b.String()
}

func TestCompile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, sls, want string }{
		{"dotted", "a:\n  local.test.ping:\n    - tgt: x\n", "local test.ping tgt='x'"},
		{"old name", "a:\n  cmd.state.apply:\n    - tgt: x\n", "local state.apply tgt='x'"},
		{"as a client", "a:\n  client.runner.jobs.list_jobs:\n    - args: {x: 1}\n",
			"runner jobs.list_jobs args={'x': 1}"},
		{"function in the list", "a:\n  runner:\n    - test.arg\n    - arg: [1]\n",
			"runner test.arg arg=[1]"},
		{"short", "a: runner.test.ping\n", "runner test.ping"},
		{"of two functions of one kind the first",
			"a:\n  local.a.b:\n    - tgt: x\n  local.c.d:\n    - tgt: y\n", "local a.b tgt='x'"},
		{"two kinds", "a:\n  wheel.key.accept: [{match: x}]\n  local.a.b: [{tgt: x}]\n",
			"local a.b tgt='x'; wheel key.accept match='x'"},
		{"by name, not by place",
			"b:\n  runner.x.y: []\na:\n  runner.x.y: []\nc:\n  local.x.y: []\n",
			"local x.y; runner x.y; runner x.y"},
		{"by order",
			"a:\n  runner.x.a: [{order: 2}]\nb:\n  runner.x.b: [{order: 1}]\nc:\n  runner.x.c: [{order: last}]\nd:\n  runner.x.d: [{order: first}]\ne:\n  runner.x.e: [{order: -1}]\nf:\n  runner.x.f: []\n",
			"runner x.d order='first'; runner x.b order=1; runner x.a order=2; runner x.f; runner x.e order=-1; runner x.c order='last'"},
		{"names", "a:\n  runner.x.y:\n    - names: [p, q: [{k: v}], p]\n    - z: 1\n",
			"runner x.y name='p' z=1; runner x.y name='q' z=1 k='v'"},
		{"by requisites",
			"a:\n  runner.x.a: [{require: [{local: c}]}]\nb:\n  runner.x.b: [{order: 1}, {require: [a]}]\nc:\n  local.x.c: []\n",
			"local x.c; runner x.a require=[{'local': 'c'}]; runner x.b order=1 require=['a']"},
		{"watch is no require", "a:\n  runner.x.a: [{watch: [b]}]\nb:\n  runner.x.b: []\n",
			"runner x.b; runner x.a watch=['b']"},
		{"hidden IDs", "__x:\n  runner.a.b: []\na:\n  runner.x.y: []\n", "runner x.y"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			chunks, faults, err := compile(t.Context(), high(t, tt.sls))
			if err != nil || len(faults) > 0 {
				t.Fatal(faults, err)
			}
			var got []string
			for _, c := range chunks {
				got = append(got, show(c))
			}
			if text := strings.Join(got, "; "); text != tt.want {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ sls, want string }{
		{"a:\n  local.test.ping:\n",
			"ID 'a' in SLS '/x.sls' contains a short declaration (local.test.ping) with a trailing colon. When not passing any arguments to a state, the colon must be omitted."},
		{"a:\n  local.test.ping: {tgt: x}\n", "State 'a' in SLS '/x.sls' is not formed as a list"},
		{"a:\n  local: [{tgt: x}]\n", "No function declared in state 'a' in SLS '/x.sls'"},
		{"a:\n  local.test.ping: [more]\n",
			"Too many functions declared in state 'a' in SLS '/x.sls'. Please choose one of the following: more, test.ping"},
		{"a:\n  local.test.ping: [{names: x}]\n",
			"The 'names' argument in state 'a' in SLS '/x.sls' needs to be formed as a list"},
		{"a:\n  local.test.ping: [{require: x}]\n",
			"The require statement in state 'a' in SLS '/x.sls' needs to be formed as a list"},
		{"a:\n  local: ['a b']\n",
			`The function "a b" in state "a" in SLS "/x.sls" has whitespace, a function with whitespace is not supported, perhaps this is an argument that is missing a ":"`},
		{"5:\n  local.test.ping: []\n",
			"ID '5' in SLS '/x.sls' is not formed as a string, but is type int. It may need to be quoted."},
		{"a:\n  local.test.ping: [{require: [b]}]\n",
			"Referenced state does not exist for requisite [require: (id: b)] in state [a] in SLS [/x.sls]"},
		{"a:\n  local.test.ping: [{require: [{local.test: b}]}]\n",
			"Invalid requisite type 'local.test' in state 'a', in SLS '/x.sls'. Requisite types must not contain dots, did you mean 'local'?"},
		{"a: text\n", "The type a in text is not formatted as a dictionary"},
	} {
		_, faults, err := compile(t.Context(), high(t, tt.sls))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(faults, "; "); got != tt.want {
			t.Errorf("%q:\ngot  %s\nwant %s", tt.sls, got, tt.want)
		}
	}
}

// FuzzHigh: whatever an SLS file says, nothing breaks.
func FuzzHigh(f *testing.F) {
	for _, s := range []string{"a:\n  local.test.ping:\n    - tgt: x\n", "a: runner.test.ping",
		"a:\n  runner.x.y:\n    - names: [p, q: [{k: v}], {}]\n    - {}\n", "- a", "a: {b: {c: d}}",
		"a:\n  wheel.key.accept:\n    - args: '[{a: 1}]'\n    - order: -5\n"} {
		f.Add(s)
	}
	r := New(Deps{Signature: func(string, string) (function.Signature, bool) {
		return function.Signature{Params: []function.Param{function.Need("match"),
			function.Opt("x", nil)}}, true
	}}, Options{}, nil, nil)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := yaml11.Load([]byte(text))
		if err != nil {
			return
		}
		m, ok := v.(value.Map)
		if !ok {
			return
		}
		if m, err = pad(m); err != nil {
			return
		}
		chunks, faults, err := compile(t.Context(), m)
		if err != nil || len(faults) > 0 {
			return
		}
		for _, c := range chunks {
			_, _ = r.job(c)
			_, _ = r.call(c)
		}
	})
}
