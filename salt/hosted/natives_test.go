package hosted_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"clustermaster/salt/modules"
	"clustermaster/salt/pillar"
	"clustermaster/salt/pythonhost"
	"clustermaster/salt/saltpython"
	"clustermaster/test/salttrees"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// calls reads testdata/calls.yaml: lists of function, arguments and keywords.
func calls(t *testing.T, root string) []any {
	t.Helper()
	text, err := os.ReadFile("testdata/calls.yaml")
	if err != nil {
		t.Fatal(err)
	}
	v, err := yaml11.Load([]byte(strings.ReplaceAll(string(text), "ROOT", root)))
	if err != nil {
		t.Fatal(err)
	}
	var out []any
	for _, line := range v.([]any) {
		with, _ := line.(value.Map).Get("with")
		for _, fun := range strings.Fields(line.(value.Map).String("fun")) {
			for _, given := range with.([]any) {
				args, kwargs := given.([]any), value.Map{}
				if n := len(args) - 1; n >= 0 {
					if m, ok := args[n].(value.Map); ok {
						args, kwargs = args[:n], m
					}
				}
				out = append(out, []any{fun, args, kwargs})
			}
		}
	}
	return out
}

// TestCallsAreSalts: functions that are not native give the value or the exception that the same
// release of Salt gives without this master, also their types.
func TestCallsAreSalts(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, python(t, release), nil)
			for name, text := range map[string]string{"bad/etc/passwd": "root:x:zero:0::/:/\n",
				"bad/etc/group": "root:x:zero:\n", "hosts": "# hosts\n127.0.0.1 localhost\n" +
					"10.0.0.1\tone one.example\n\n10.0.0.1 again\n"} {
				path := filepath.Join(s.root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
					os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			list := calls(t, s.root)
			asked, err := value.PackNew(list)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(python(t, release), "testdata/calls.py", s.root)
			cmd.Env = append(os.Environ(), "LC_ALL=", "LANG=C.UTF-8") // as the host
			var stderr bytes.Buffer
			cmd.Stdin, cmd.Stderr = bytes.NewReader(asked), &stderr
			said, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			answers, err := value.Unpack(said)
			if err != nil {
				t.Fatal(err)
			}
			functions, done := s.deps.Functions.(pillar.Binder).Bind()
			defer done()
			who := modules.Minion{ID: "web1", Grains: salttrees.Grains(t, "calls.py")}
			values := 0
			for i, c := range list {
				c := c.([]any)
				fun, args, kwargs := c[0].(string), c[1].([]any), c[2].(value.Map)
				v, err := functions.Call(t.Context(), who, fun, args, kwargs)
				got := value.Map{{Key: "value", Value: v}}
				var e *pythonhost.Error
				if errors.Is(err, modules.ErrUnknown) {
					got = value.Map{{Key: "class", Value: "unknown"}, {Key: "text", Value: ""}}
				} else if errors.As(err, &e) {
					got = value.Map{{Key: "class", Value: e.Class}, {Key: "text", Value: e.Text}}
				} else if err != nil {
					t.Errorf("%v: %v", c, err)
					continue
				} else {
					values++
				}
				if want := answers.([]any)[i]; !reflect.DeepEqual(got, want) {
					t.Errorf("%v:\ngot    %v\nSalt's %v", c, got, want)
				}
			}
			if values < 200 {
				t.Errorf("%d of %d calls gave a value", values, len(list))
			}
		})
	}
}

// TestNoPythonNamesPackage: without Salt's Python, a template that calls a function which is not
// native gets one error, with the function's name and what to install.
func TestNoPythonNamesPackage(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", nil)
	why := "; " + saltpython.ErrMissing.Error()
	render := func(text string) string {
		v, err := s.compiler.RenderText(t.Context(), pillar.Request{ID: "web1"}, nil, nil, "t.sls",
			text, "jinja|yaml", nil)
		return fmt.Sprint(v, err)
	}
	for _, fun := range []string{"network.ip_addrs", "user.info", "group.info", "shadow.info",
		"timezone.get_zone", "random.seed", "dnsutil.A", "slsutil.banner", "file.user_to_uid",
		"nosuch.function"} {
		module, name, _ := strings.Cut(fun, ".")
		dotted := "AliasedLoader object' has no attribute '" + module + "'"
		if s.deps.Functions.Has(t.Context(), module+".") {
			dotted = "LoadedMod object' has no attribute '" + name + "'"
		}
		for call, want := range map[string]string{
			"salt['" + fun + "']('x')": "AliasedLoader object' has no attribute '" + fun + "'" + why,
			"salt." + fun + "('x')":    dotted + why,
			"grains.nosuch.x":          "'dict object' has no attribute 'nosuch'",
		} {
			got := render("v: {{ '" + fun + "' in salt or " + call + " }}\n")
			if !strings.Contains(got, want+"; line 1\n") {
				t.Errorf("%s gave %s, want %s", call, got, want)
			}
		}
		got := render("#!py\ndef run():\n    return {'v': __salt__['" + fun + "']()}\n")
		if !strings.Contains(got, "'"+fun+why+"'") {
			t.Errorf("%s in Python gave %s", fun, got)
		}
	}
}
