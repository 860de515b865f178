package pythonhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/value"
)

var releases = []string{"3006.28", "3007.15", "3008.3"}

// python is the interpreter of a release of Salt.
func python(t testing.TB, release string) string {
	t.Helper()
	dir := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if dir == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	return filepath.Join(dir, "salt-"+release, "bin", "python3")
}

// site is a folder of a site's modules.
type site struct {
	root  string
	host  *Host
	lines *lines
}

// lines keeps what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// newSite puts files below a root and makes a host for them.
func newSite(t testing.TB, release string, files map[string]string, change func(*Options)) *site {
	t.Helper()
	s := &site{root: t.TempDir(), lines: &lines{}}
	for name, text := range files {
		path := filepath.Join(s.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	exe := python(t, release)
	o := Options{
		Python: func() (string, error) { return exe, nil },
		Opts: value.Map{
			{Key: "id", Value: "master1"}, {Key: "root_dir", Value: s.root},
			{Key: "cachedir", Value: s.root + "/cache"},
			{Key: "extension_modules", Value: s.root + "/ext"},
			{Key: "module_dirs", Value: []any{s.root + "/dirs"}},
			{Key: "file_roots", Value: value.Map{{Key: "base", Value: []any{s.root + "/files"}}}},
		},
	}
	if change != nil {
		change(&o)
	}
	s.host = New(o, slog.New(slog.NewTextHandler(s.lines,
		&slog.HandlerOptions{Level: slog.LevelDebug})), nil)
	t.Cleanup(func() { s.host.Close() })
	return s
}

func minion(id string) Minion {
	return Minion{ID: id, Grains: value.Map{
		{Key: "id", Value: id}, {Key: "kernel", Value: "Linux"}, {Key: "os", Value: "Debian"},
		{Key: "os_family", Value: "Debian"},
		{Key: "osrelease_info", Value: []any{12}}, {Key: "kernelrelease", Value: "6.1"},
	}, Pillar: value.Map{{Key: "owner", Value: "pillar of " + id}}}
}

// TestNotPacked: after a call whose arguments can't be sent, the session goes on. An answer that
// can't be sent is an error in Python.
func TestNotPacked(t *testing.T) {
	t.Parallel()
	deep := any("x")
	for range value.MaxDepth + 1 {
		deep = []any{deep}
	}
	s := newSite(t, "3008.3", map[string]string{"ext/modules/fact.py": factModule},
		func(o *Options) {
			o.Natives = map[string][]string{"module": {"mine.get"}}
			o.Answer = func(context.Context, Question) (any, error) { return deep, nil }
		})
	session := s.host.Session(minion("web1"))
	defer session.Close()
	for _, c := range []Call{{Kind: Module, Fun: "test.echo", Args: []any{deep}},
		{Kind: Module, Fun: "fact.mine", Args: []any{"*", "x"}}} {
		if v, err := session.Call(t.Context(), c); err == nil ||
			!strings.Contains(err.Error(), "pack for the Python host") {
			t.Errorf("%s: %v, %v", c.Fun, v, err)
		}
		if v := call(t, session, "test.echo", "next"); v != "next" {
			t.Errorf("the call after %s: %v", c.Fun, v)
		}
		v, _ := call(t, session, "fact.about").(value.Map)
		if v.String("pillar") != "pillar of web1" {
			t.Errorf("the process after %s: %v", c.Fun, v)
		}
	}
}

func call(t testing.TB, s *Session, fun string, args ...any) any {
	t.Helper()
	v, err := s.Call(t.Context(), Call{Kind: Module, Fun: fun, Args: args})
	if err != nil {
		t.Fatalf("%s: %v", fun, err)
	}
	return v
}

const factModule = `
import os

def about():
    return {"id": __grains__["id"], "pillar": __salt__["pillar.get"]("owner"), "opts": __opts__["id"], "grain": __salt__["grains.get"]("id")}

def mine(tgt, fun):
    return __salt__["mine.get"](tgt, fun)

def fail(text):
    raise ValueError(text)
`

// TestConfigDir: Salt's own modules find the folder of the configuration, which its commands put
// into the options.
func TestConfigDir(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3008.3", map[string]string{
		"conf/master":         "id: master1\n",
		"ext/modules/told.py": "def folder():\n    return __opts__['config_dir']\n",
	}, nil)
	s.host.opts.ConfFile = filepath.Join(s.root, "conf", "master")
	session := s.host.Session(minion("web1"))
	defer session.Close()
	if got := call(t, session, "told.folder"); got != filepath.Join(s.root, "conf") {
		t.Errorf("config_dir is %v", got)
	}
}

// TestCalls calls a site's modules, Salt's own, and the master back, with each release.
func TestCalls(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, release, map[string]string{
				"ext/modules/fact.py":   factModule,
				"dirs/modules/other.py": "def name():\n    return __name__\n",
				"ext/modules/broken.py": "import not_there\ndef x():\n    return 1\n",
				"ext/pillar/owners.py":  "def ext_pillar(minion_id, pillar, *args, **kwargs):\n    return {'owner': [minion_id, dict(pillar), list(args), kwargs]}\n",
			}, func(o *Options) {
				o.Natives = map[string][]string{"module": {"mine.get"}}
				o.Answer = func(_ context.Context, q Question) (any, error) {
					return value.Map{{Key: "asked",
						Value: []any{q.What, q.Fun, q.Args, q.Minion.ID}}}, nil
				}
			})
			session := s.host.Session(minion("web1"))
			defer session.Close()
			if session.Used() {
				t.Error("used before the first call")
			}
			got := fmt.Sprint(call(t, session, "fact.about"))
			own := "web1" // whose id stands in the options of a pillar's functions
			if release == "3008.3" {
				own = "master1"
			}
			if want := "[{id web1} {pillar pillar of web1} {opts " + own +
				"} {grain web1}]"; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := fmt.Sprint(call(t, session, "fact.mine", "*",
				"ip")); got != "[{asked [module mine.get [* ip] web1]}]" {
				t.Errorf("got %s", got)
			}
			if got := fmt.Sprint(call(t, session, "test.echo", "x")); got != "x" {
				t.Errorf("got %s", got)
			}
			if got := call(t, session, "other.name"); !strings.Contains(got.(string),
				"ext.module.other") {
				t.Errorf("got %s", got)
			}
			_, err := session.Call(t.Context(),
				Call{Kind: Module, Fun: "fact.fail", Args: []any{"no luck"}})
			var e *Error
			if !errors.As(err, &e) || e.Error() != "no luck" || e.Class != "ValueError" ||
				!strings.HasSuffix(e.File, "fact.py") || !e.Raised("Exception") {
				t.Errorf("got %#v", err)
			}
			for _, name := range []string{"fact.none", "no_such_module.fun"} {
				if _, err := session.Call(t.Context(),
					Call{Kind: Module, Fun: name}); !errors.Is(err, ErrUnknown) {
					t.Errorf("%s: %v", name, err)
				}
			}
			_, err = session.Call(t.Context(), Call{Kind: Module, Fun: "broken.x"})
			if !errors.Is(err, ErrUnknown) ||
				!strings.Contains(err.Error(),
					"broken.py: ModuleNotFoundError: No module named 'not_there'") {
				t.Errorf("got %v", err)
			}
			for name, want := range map[string]bool{"fact.about": true, "fact.": true,
				"pkg.version": true, "nothing.": false, "test.none": false} {
				if got, err := session.Has(t.Context(), name); err != nil || got != want {
					t.Errorf("has %s: %v %v", name, got, err)
				}
			}
			for _, c := range []struct {
				given any
				want  string
			}{
				{[]any{"a", 1}, "[{owner [web1 [{k 1}] [a 1] []]}]"},
				{value.Map{{Key: "n", Value: 2}}, "[{owner [web1 [{k 1}] [] [{n 2}]]}]"},
				{"one", "[{owner [web1 [{k 1}] [one] []]}]"},
			} {
				v, err := session.Call(t.Context(),
					Call{Kind: Pillar, Fun: "owners", Given: c.given,
						Pillar: value.Map{{Key: "k", Value: 1}}})
				if err != nil || fmt.Sprint(v) != c.want {
					t.Errorf("got %v %v, want %s", v, err, c.want)
				}
			}
			if st := s.host.Status(); st.Salt != release || st.Started != 1 {
				t.Errorf("status %+v", st)
			}
		})
	}
}

const badModule = `
import ctypes, logging, os, subprocess, sys, time
log = logging.getLogger(__name__)

def hang():
    time.sleep(3600)

def spin():
    while True:
        pass

def memory():
    return len("x" * (3 << 30))

def large():
    return "x" * (4 << 20)

def fork():
    return os.fork()

def bomb():
    while True:
        try:
            os.fork()
        except OSError:
            pass

def many():
    for _ in range(100):
        subprocess.Popen(["sleep", "1000"])
    time.sleep(100)

def left():
    return subprocess.Popen(["sleep", "1000"]).pid

def crash():
    ctypes.string_at(0)

def leave():
    os._exit(3)

def leave_politely():
    sys.exit(4)

def kill():
    os.killpg(0, 9)

def printed():
    print("printed by python")
    os.write(1, b"written to one\n")
    sys.stderr.write("written to stderr\n")
    log.warning("logged by %s", "python")
    return True

def odd():
    return {"set": {1}, "tuple": (1, 2), "big": 1 << 70}

def unsendable():
    a = []
    a.append(a)
    return a

class Broken:
    def items(self):
        raise RuntimeError("its source is closed")

def broken():
    return Broken()

def descriptors():
    out = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            out[fd] = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            pass
    return out
`

// TestBadFunctions makes calls that do to their process what they can. Each costs its own call an
// error that names module, function and file, and the next call works.
func TestBadFunctions(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3008.3", map[string]string{"ext/modules/bad.py": badModule}, func(o *Options) {
		o.Timeout, o.Memory, o.Output, o.Processes = 3*time.Second, 2<<30, 1<<20, 20
	})
	file := s.root + "/ext/modules/bad.py"
	session := s.host.Session(minion("web1"))
	defer session.Close()
	other := s.host.Session(minion("db1"))
	defer other.Close()
	call(t, other, "test.echo", "before")
	call(t, session, "test.echo", "before")
	server := s.host.Status().PID
	for _, c := range []struct{ fun, says string }{
		{"hang", "took longer than 3s and was stopped (option python_timeout)"},
		{"spin", "took longer than 3s and was stopped (option python_timeout)"},
		{"memory",
			"needed more than 2147483648 bytes of memory and was stopped (option python_memory)"},
		{"large", "made more than 1048576 bytes and was stopped (option python_output)"},
		{"bomb", "started more than 20 processes and was stopped (option python_processes)"},
		{"many", "started more than 20 processes and was stopped (option python_processes)"},
		{"crash", "ended its process: signal 11 (segmentation fault)"},
		{"leave", "ended its process: exit status 3"},
		{"leave_politely", "called exit(4)"},
		{"kill", "ended its process: signal 9 (killed)"},
		{"unsendable", "returned what can't be sent: "},
		{"broken", "returned what can't be sent: RuntimeError: its source is closed"},
	} {
		before := s.children(t)
		_, err := session.Call(t.Context(), Call{Kind: Module, Fun: "bad." + c.fun})
		want := "function bad." + c.fun + " (module bad of " + file + ") " + c.says
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", c.fun, err, want)
		}
		for _, pid := range before {
			if session.child == nil || pid != session.child.pid {
				if left := inSession(pid); len(left) > 0 && pid != other.child.pid {
					t.Errorf("%s left processes %v", c.fun, left)
				}
			}
		}
		if got := call(t, session, "test.echo", c.fun); got != c.fun {
			t.Errorf("after %s: %v", c.fun, got)
		}
		if got := call(t, other, "test.echo", "other"); got != "other" {
			t.Errorf("after %s: %v", c.fun, got)
		}
	}
	if st := s.host.Status(); server == 0 || st.PID != server {
		t.Errorf("the fork server %d was lost: %+v", server, st)
	}
}

func (s *site) children(t *testing.T) []int {
	t.Helper()
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	var out []int
	for c := range s.host.busy {
		out = append(out, c.pid)
	}
	return out
}

// TestOddFunctions makes calls that are unusual and cost nothing.
func TestOddFunctions(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3008.3", map[string]string{"ext/modules/bad.py": badModule}, nil)
	session := s.host.Session(minion("web1"))
	defer session.Close()
	// The forked copy returns from the function as well; only the child's answer counts.
	for range 3 {
		if pid := call(t, session, "bad.fork"); pid == int64(0) {
			t.Error("the copy answered")
		}
	}
	pid, _ := call(t, session, "bad.left").(int64)
	if err := syscall.Kill(int(pid), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d that the call left: %v", pid, err)
	}
	if got := fmt.Sprint(call(t, session,
		"bad.odd")); got != "[{set [1]} {tuple [1 2]} {big 1180591620717411303424}]" {
		t.Errorf("got %s", got)
	}
	call(t, session, "bad.printed")
	for _, text := range []string{"printed by python", "written to stderr",
		`level=WARN msg="logged by python"`, "module=salt.loaded.ext.module.bad", "minion=web1"} {
		if !s.lines.has(text) {
			t.Errorf("%q is not in the log", text)
		}
	}
	wait(t, "what was written past the channel",
		func() bool { return s.lines.has("written to one") })
}

// TestDescriptors looks for files of the master in a child.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3008.3", map[string]string{"ext/modules/bad.py": badModule}, nil)
	secret, err := os.Open(filepath.Join(s.root, "ext/modules/bad.py"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	one := s.host.Session(minion("web1"))
	defer one.Close()
	call(t, one, "test.ping")
	two := s.host.Session(minion("web2"))
	defer two.Close()
	fds, _ := call(t, two, "bad.descriptors").(value.Map)
	var sockets int
	for _, p := range fds {
		to, _ := p.Value.(string)
		switch {
		case strings.HasPrefix(to, "socket:"):
			sockets++
		case to == "/dev/null", strings.HasPrefix(to, "pipe:") && (p.Key == "1" || p.Key == "2"),
			strings.HasPrefix(to, "/proc/"), to == "/dev/urandom":
		default:
			t.Errorf("descriptor %v is %s", p.Key, to)
		}
	}
	if sockets != 1 {
		t.Errorf("%d sockets in %v, want the child's own", sockets, fds)
	}
}

// TestHostEnds kills the fork server and the host's owner.
func TestHostEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, "3008.3", map[string]string{"ext/modules/bad.py": badModule}, nil)
	session := s.host.Session(minion("web1"))
	defer session.Close()
	call(t, session, "test.ping")
	pid := session.child.pid
	if err := syscall.Kill(s.host.Status().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, "the end of the child", func() bool { return len(inSession(pid)) == 0 })
	if _, err := session.Call(t.Context(), Call{Kind: Module, Fun: "test.ping"}); err == nil {
		t.Error("a call of a killed child worked")
	}
	if n := len(s.host.free); n != cap(s.host.free)-1 {
		t.Errorf("%d children more may run while the session waits for its next one", n)
	}
	if v := call(t, session, "test.ping"); v != true {
		t.Errorf("after the fork server's end: %v", v)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := session.Call(ctx, Call{Kind: Module, Fun: "bad.hang"}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	call(t, session, "test.ping")
	server, child := s.host.Status().PID, session.child.pid
	s.host.Close()
	wait(t, "the end of all", func() bool {
		return len(inSession(server)) == 0 &&
			len(inSession(child)) == 0
	})
	if _, err := s.host.Session(minion("x")).Call(t.Context(),
		Call{Kind: Module, Fun: "test.ping"}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestNoHost says why there is none.
func TestNoHost(t *testing.T) {
	t.Parallel()
	plain := New(Options{Python: func() (string, error) {
		return "",
			errors.New("no Salt on this machine")
	}}, nil, nil)
	if _, err := plain.Session(minion("a")).Call(t.Context(),
		Call{Kind: Module, Fun: "test.ping"}); !errors.Is(err, ErrHost) ||
		!strings.Contains(err.Error(), "no Salt on this machine") {
		t.Errorf("got %v", err)
	}
	s := newSite(t, "3008.3", nil,
		func(o *Options) { o.program = "import sys\nprint('cannot')\nsys.exit(1)" })
	_, err := s.host.Session(minion("a")).Call(t.Context(), Call{Kind: Module, Fun: "test.ping"})
	if !errors.Is(err, ErrHost) || !strings.Contains(err.Error(),
		"the interpreter ended before Salt was loaded") {
		t.Errorf("got %v", err)
	}
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestWordsOfEachPeriod: a flood of output leaves out lines of its own period only.
func TestWordsOfEachPeriod(t *testing.T) {
	t.Parallel()
	var c wordCount
	at := time.Unix(1000, 0)
	for i, step := range []struct {
		later   time.Duration
		n       int
		ok      bool
		dropped int
	}{
		{0, maxWords, true, 0}, {time.Second, 1, false, 0}, {0, 1, false, 0},
		{wordsPeriod - 2*time.Second, 1, false, 0}, {time.Second, maxWords, true, 3},
		{wordsPeriod, 1, true, 0},
	} {
		at = at.Add(step.later)
		if ok, dropped := c.add(step.n, at); ok != step.ok || dropped != step.dropped {
			t.Errorf("step %d: %v, %d left out", i, ok, dropped)
		}
	}
}

// TestWordsLeftOutAreTold: the log says so at the first line of a flood, and counts at its end.
func TestWordsLeftOutAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the period does not end
		said, saying, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer saying.Close()
			for range 2 * maxWords / 1024 {
				if _, err := saying.WriteString(strings.Repeat("x", 1023) + "\n"); err != nil {
					t.Error(err)
				}
			}
		}()
		var told bytes.Buffer
		log := slog.New(slog.NewTextHandler(&told, &slog.HandlerOptions{Level: slog.LevelWarn}))
		(&server{h: &Host{log: log}}).words(said, &lastLine{})
		first, rest, _ := strings.Cut(told.String(), "\n")
		if !strings.Contains(first, "lines are left out") || !strings.Contains(rest, "n=1024") {
			t.Errorf("the log says %s", &told)
		}
	})
}
