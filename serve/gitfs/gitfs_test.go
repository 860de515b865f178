package gitfs

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"clustermaster/value"
)

// open opens a store of remotes that log into the returned buffer.
func open(t testing.TB, o Options, remotes ...any) (*Store, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	dir := t.TempDir()
	o.Dir, o.CacheDir = filepath.Join(dir, "git"), dir
	o.Files = Config{Role: RoleFiles, Remotes: remotes,
		Global: func(option string) any { return defaults[option] }}
	s, problems, err := New(o, newAlone(), nil, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		log.WriteString(p.Error() + "\n")
	}
	t.Cleanup(s.Close)
	return s, &log
}

// reopened opens the folders of a closed store, as the next start of its master does.
func (s *Store) reopened(t testing.TB, with Agreement) *Store {
	t.Helper()
	again, problems, err := New(s.opts, with, nil, nil, nil)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	t.Cleanup(again.Close)
	return again
}

// with gives a remote options.
func with(url string, options ...any) value.Map {
	m := make([]any, 0, len(options)/2)
	for i := 0; i < len(options); i += 2 {
		m = append(m, value.Map{{Key: options[i], Value: options[i+1]}})
	}
	return value.Map{{Key: url, Value: m}}
}

func (s *Store) all(t testing.TB) map[string]Outcome {
	t.Helper()
	return s.round(t.Context(), s.keys)
}

func (s *Store) mendAll(t testing.TB, now time.Time) {
	t.Helper()
	for _, m := range s.mirrors {
		s.mend(t.Context(), m, now)
	}
}

func (s *Store) catchUpAll(t testing.TB) {
	t.Helper()
	for _, m := range s.mirrors {
		s.catchUp(t.Context(), m)
	}
}

func (s *Store) read(t testing.TB, name, env string) string {
	t.Helper()
	f, ok, err := s.Find(t.Context(), name, env)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return "(absent)"
	}
	b, err := f.Whole(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestHostileTrees serves a repository whose trees hold names that lead elsewhere.
func TestHostileTrees(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	blob := r.pipe("secret", "hash-object", "-w", "--stdin")
	inner := r.pipe("100644 blob "+blob+"\tpasswd\n", "mktree")
	entries := "040000 tree " + inner + "\t..\n040000 tree " + inner + "\t.git\n040000 tree " +
		inner + "\t.GIT\n" +
		"100644 blob " + blob + "\t\xff\xfe\n100644 blob " + blob + "\tgood\n100644 blob " + blob +
		"\t.\n"
	entries = strings.ReplaceAll(entries, "\n", "\x00")
	tree := r.pipe(entries, "mktree", "-z")
	r.git("update-ref", "refs/heads/master", r.git("commit-tree", "-m", "hostile", tree))
	s, log := open(t, Options{}, "file://"+r.dir)
	for _, o := range s.all(t) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	l, err := s.Lists(t.Context(), "base")
	if err != nil || !slices.Equal(l.Files, []string{"good"}) || len(l.Dirs) > 0 {
		t.Errorf("got files %q, folders %q, %v", l.Files, l.Dirs, err)
	}
	for _, name := range []string{"../passwd", ".git/passwd", ".GIT/passwd", "\xff\xfe", "."} {
		if got := s.read(t, name, "base"); got != "(absent)" {
			t.Errorf("%q is served: %q", name, got)
		}
	}
	if got := s.read(t, "good", "base"); got != "secret" {
		t.Errorf("good: %q", got)
	}
	for _, env := range []string{"../..", "/etc", "..", "-c", "--exec=id", "HEAD", "master~0",
		"master^{tree}", ":/hostile", "master:good", "@{-1}", "refs/../master", "base\n", "\x00"} {
		if got := s.read(t, "good", env); got != "(absent)" {
			t.Errorf("environment %q: %q", env, got)
		}
	}
	if !strings.Contains(log.String(), "unsafe") {
		t.Errorf("nothing is said of unsafe names: %s", log)
	}
	err = filepath.WalkDir(filepath.Dir(s.opts.Dir),
		func(path string, _ os.DirEntry, err error) error {
			if strings.HasSuffix(path, "passwd") {
				t.Errorf("%s was written", path)
			}
			return err
		})
	if err != nil {
		t.Error(err)
	}
}

// TestRemotesThatFail keeps serving what was agreed on, tells of each error once and goes on with
// the others.
func TestRemotesThatFail(t *testing.T) {
	t.Parallel()
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	go func() {
		for {
			c, err := hangs.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	r, bad := newRepo(t), "file:///nowhere/at-all"
	r.write(map[string]string{"a": "1"})
	r.commit("one")
	s, log := open(t, Options{Timeout: 10 * time.Second},
		"file://"+r.dir, bad, with("git://"+hangs.Addr().String()+"/x", "name", "hanging"),
		with("https://e.example/x", "rot", "x", "name", "wrong"),
		"ext::sh -c touch% /tmp/x", with("http://e.example/y", "user", "u", "password",
			"secretword"))
	failed := 0
	for _, o := range s.all(t) {
		if o.Err != nil {
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("%d failed, want the absent and the hanging one", failed)
	}
	if got := s.read(t, "a", "base"); got != "1" {
		t.Errorf("a: %q", got)
	}
	for _, want := range []string{
		"remote https://e.example/x: option rot: ",
		"remote ext::sh -c touch% /tmp/x: option remotes: ",
		"remote http://e.example/y: option insecure_auth: ", "was stopped", bad,
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q is said %d times:\n%s", want, n, log)
		}
	}
	if strings.Contains(log.String(), "secretword") {
		t.Error("the log shows a password")
	}
	if err := os.Rename(r.dir, r.dir+".away"); err != nil {
		t.Fatal(err)
	}
	key := s.files[0].key
	for range 2 {
		if o := s.round(t.Context(), []string{key}); o[key].Err == nil {
			t.Error("a remote that is gone was fetched")
		}
	}
	if got := s.read(t, "a", "base"); got != "1" {
		t.Errorf("a of a remote that is gone: %q", got)
	}
	if n := strings.Count(log.String(), bad+" can't be updated"); n != 1 {
		t.Errorf("one error is said %d times", n)
	}
}

// TestForcePushDeleteAndRestart follows refs wherever they go, and serves the same after a restart.
func TestForcePushDeleteAndRestart(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"a": "1"})
	r.commit("one")
	r.git("branch", "dev")
	s, _ := open(t, Options{}, "file://"+r.dir)
	s.all(t)
	r.write(map[string]string{"a": "2"})
	r.git("add", "-A")
	r.git("commit", "-q", "--amend", "-m", "other")
	r.git("branch", "-D", "dev")
	s.all(t)
	if got := s.read(t, "a", "base"); got != "2" {
		t.Errorf("after a force-push: %q", got)
	}
	if got := s.Envs(); !slices.Equal(got, []string{"base"}) {
		t.Errorf("environments: %q", got)
	}
	changed := 0
	for _, o := range s.all(t) {
		if o.Changed {
			changed++
		}
	}
	if changed != 0 {
		t.Error("a fetch without news is a change")
	}
	s.Close()
	again := s.reopened(t, newAlone())
	if got := again.read(t, "a", "base"); got != "2" {
		t.Errorf("after a restart: %q", got)
	}
}

// TestWorkThatIsCutShort gives commits up at any moment of their being checked and kept, as the
// leader does with slow masters once a majority holds them: the next try finds no lock in its way.
func TestWorkThatIsCutShort(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.commit("first")
	s, _ := open(t, Options{}, "file://"+r.dir)
	m := s.mirrors[s.keys[0]]
	for i := range 120 {
		id := r.commit(fmt.Sprintf("commit %d", i))
		if _, err := m.fetch(t.Context(), m.remote); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		err := m.keep(ctx, []string{id})
		cancel()
		if err != nil {
			err = m.keep(t.Context(), []string{id})
		}
		if err != nil {
			t.Fatalf("after try %d was cut short: %v", i, err)
		}
	}
}

// TestLocksOfRunsThatAreGone puts locks into a mirror that git leaves when it is killed.
func TestLocksOfRunsThatAreGone(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"a": "1"})
	r.commit("first")
	s, _ := open(t, Options{}, "file://"+r.dir)
	s.all(t)
	m := s.mirrors[s.keys[0]]
	r.write(map[string]string{"a": "2"})
	id := r.commit("second")
	leave := func(names ...string) {
		t.Helper()
		for _, name := range names {
			full := filepath.Join(m.dir, name+".lock")
			if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(full, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Close()
	leave("refs/remotes/origin/master", keepRefs+id, "packed-refs", "shallow")
	again := s.reopened(t, s.with)
	for key, o := range again.all(t) {
		if o.Err != nil {
			t.Errorf("%s: %v", key, o.Err)
		}
	}
	if got := again.read(t, "a", "base"); got != "2" {
		t.Errorf("after a restart among locks: %q", got)
	}
}

// TestPins holds, rolls back and frees an environment.
func TestPins(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	var ids []string
	s, _ := open(t, Options{}, with("file://"+r.dir, "name", "states"))
	for i := range 3 {
		r.write(map[string]string{"a": fmt.Sprint(i), fmt.Sprint("f", i): "x"})
		ids = append(ids, r.commit(fmt.Sprint("c", i)))
		s.all(t)
	}
	expect := func(want string) {
		t.Helper()
		if got := s.read(t, "a", "base"); got != want {
			t.Errorf("served %q, want %q", got, want)
		}
	}
	expect("2")
	c, err := s.Pin(t.Context(), "states", "base", ids[0][:10], "ada", true)
	if err != nil || !slices.Equal(c.Files, []string{"M a", "D f1", "D f2"}) {
		t.Errorf("dry run: %+v, %v", c, err)
	}
	expect("2")
	if _, err := s.Rollback(t.Context(), "states", "base", "ada", false); err != nil {
		t.Error(err)
	}
	expect("1")
	if _, err := s.Rollback(t.Context(), "states", "base", "ada", false); err != nil {
		t.Error(err)
	}
	expect("0")
	if _, err := s.Rollback(t.Context(), "states", "base", "ada", false); err == nil {
		t.Error("rolled back beyond what is known")
	}
	r.write(map[string]string{"a": "3"})
	r.commit("c3")
	s.all(t)
	expect("0")
	st, err := s.Status(t.Context(), "")
	if err != nil || st[0].Envs[0].PinnedBy != "ada" || st[0].Envs[0].Subject != "c0" ||
		st[0].Envs[0].Author != "Ada" {
		t.Errorf("status: %+v, %v", st, err)
	}
	if _, err := s.Unpin(t.Context(), "states", "base", "ada", false); err != nil {
		t.Error(err)
	}
	expect("3")
	if _, err := s.Pin(t.Context(), "states", "base", "nothing", "ada", false); err == nil {
		t.Error("pinned to a commit that there is not")
	}
	if _, err := s.Pin(t.Context(), "other", "base", ids[0], "ada", false); err == nil ||
		!strings.Contains(err.Error(), "states") {
		t.Errorf("an unknown remote: %v", err)
	}
	locked, err := s.SetLock(t.Context(), RoleFiles, "sta*", true)
	m := s.mirrors[s.keys[0]]
	if err != nil || len(locked) != 1 || s.due(m, s.with.Tables()[m.key], time.Now().Add(time.Hour)) {
		t.Errorf("lock: %q, %v", locked, err)
	}
}

// TestAllowedSigners serves signed commits only.
func TestAllowedSigners(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	dir := t.TempDir()
	key, signers := filepath.Join(dir, "key"), filepath.Join(dir, "signers")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
		key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v %s", err, out)
	}
	pub, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(signers, []byte("ada@example.org "+string(pub)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.git("config", "gpg.format", "ssh")
	r.git("config", "user.signingkey", key)
	r.write(map[string]string{"a": "signed"})
	r.git("add", "-A")
	r.git("commit", "-q", "-S", "-m", "signed")
	s, log := open(t, Options{Signers: signers}, "file://"+r.dir)
	s.all(t)
	r.write(map[string]string{"a": "not signed"})
	r.commit("not signed")
	r.git("branch", "dev")
	s.all(t)
	if got := s.read(t, "a", "base"); got != "signed" {
		t.Errorf("served %q", got)
	}
	if got := s.Envs(); !slices.Equal(got, []string{"base"}) {
		t.Errorf("environments %q", got)
	}
	if !strings.Contains(log.String(), "no allowed signer has signed dev at ") {
		t.Errorf("the log: %s", log)
	}
	// The commit was fetched; nobody gets it by its id either.
	unsigned, signed := r.git("rev-parse", "HEAD"), r.git("rev-parse", "HEAD~1")
	for _, id := range []string{unsigned, unsigned[:12], strings.ToUpper(unsigned)} {
		if got := s.read(t, "a", id); got != "(absent)" {
			t.Errorf("environment %s: served %q", id, got)
		}
		if _, err := s.Pin(t.Context(), "file://"+r.dir, "base", id, "ada", false); err == nil {
			t.Errorf("base is pinned to %s", id)
		}
	}
	for _, id := range []string{signed, signed[:12]} {
		if got := s.read(t, "a", id); got != "signed" {
			t.Errorf("environment %s: served %q", id, got)
		}
	}
}

// TestHTTPS fetches from a smart server with user, password and a certificate of its own, and
// refuses others.
func TestHTTPS(t *testing.T) {
	r := newRepo(t)
	r.write(map[string]string{"a": "over https"})
	r.commit("one")
	core := r.git("--exec-path")
	backend := &cgi.Handler{
		Path: filepath.Join(core, "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(r.dir), "GIT_HTTP_EXPORT_ALL=1"},
	}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, password, _ := q.BasicAuth(); user != "deploy" || password != "it's $ecret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, q)
	}))
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	url := srv.URL + "/repo/.git"
	for _, c := range []struct {
		name, ca string
		options  []any
		want     string
	}{
		{"right", ca, []any{"user", "deploy", "password", "it's $ecret"}, ""},
		{"wrong password", ca, []any{"user", "deploy", "password", "wrong-one"},
			"Authentication failed"},
		{"unknown certificate", "", []any{"user", "deploy", "password", "it's $ecret"},
			"certificate"},
		{"unverified", "", []any{"user", "deploy", "password", "it's $ecret", "ssl_verify",
			false}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GIT_SSL_CAINFO", c.ca)
			if c.ca == "" {
				os.Unsetenv("GIT_SSL_CAINFO")
			}
			s, log := open(t, Options{}, with(url, c.options...))
			for _, o := range s.all(t) {
				if (o.Err == nil) != (c.want == "") || o.Err != nil &&
					!strings.Contains(o.Err.Error(), c.want) {
					t.Errorf("got %v, want %q", o.Err, c.want)
				}
			}
			if got := s.read(t, "a", "base"); c.want == "" && got != "over https" {
				t.Errorf("served %q\n%s", got, log)
			}
			if strings.Contains(log.String(), "wrong-one") {
				t.Error("the log shows a password")
			}
		})
	}
}

// TestGitDaemon fetches from a real git daemon.
func TestGitDaemon(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"a": "over git"})
	r.commit("one")
	// An address of this process: on 127.0.0.1 somebody else may take the port before the daemon.
	n := uint(os.Getpid())
	host := fmt.Sprintf("127.%d.%d.%d", 1+n>>14%200, 1+n>>7%128, 1+n%128)
	ln, err := net.Listen("tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().(*net.TCPAddr)
	ln.Close()
	ctx, stop := context.WithCancel(t.Context())
	daemon := exec.CommandContext(ctx, filepath.Join(r.git("--exec-path"), "git-daemon"),
		"--listen="+host, fmt.Sprint("--port=", addr.Port),
		"--export-all", "--base-path="+filepath.Dir(r.dir), "--reuseaddr")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = daemon.Wait() })
	s, _ := open(t, Options{}, "git://"+addr.String()+"/repo/.git")
	deadline := time.Now().Add(20 * time.Second)
	for s.read(t, "a", "base") != "over git" {
		if time.Now().After(deadline) {
			t.Fatal("not served in time")
		}
		s.all(t) // waits for the daemon's port by trying
	}
}

// TestMissingBranches asks for pillars from remotes that were never fetched, from branches made a
// moment ago, and from branches that do not exist, which must not make the leader fetch at will.
func TestMissingBranches(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	branch := func(name string) {
		r.git("checkout", "-q", "-B", name)
		r.write(map[string]string{"top.sls": name})
		r.commit(name)
	}
	branch("master")
	remotes := []any{"__env__ file://" + r.dir}
	s, problems := openWith(t, nil, remotes)
	if problems != nil {
		t.Fatal(problems)
	}
	began, agreed := time.Now(), new(sometimesLed)
	agreed.Agreement, s.with = s.with, agreed
	s.firstWait = 100 * time.Millisecond
	if trees, err := s.Pillars(t.Context(), remotes, "", ""); err == nil {
		t.Errorf("never fetched, without a leader: %v", trees)
	}
	s.firstWait = time.Minute
	agreed.led.Store(true)
	served := func(pillarenv string) string {
		t.Helper()
		trees, err := s.Pillars(t.Context(), remotes, "", pillarenv)
		if err != nil {
			t.Fatal(err)
		}
		if len(trees) == 0 {
			return ""
		}
		_, data, _, err := trees[0].Open(t.Context(), "top.sls")
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := served(""); got != "master" {
		t.Fatalf("never fetched: %q", got)
	}
	branch("new")
	if got := served("new"); got != "new" {
		t.Errorf("a new branch: %q", got)
	}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { served("nosuch") })
	}
	all.Wait()
	for range 3 * missingBurst {
		served("nosuch")
	}
	most := missingBurst + int(time.Since(began)/missingEvery)
	if n := int(testutil.ToFloat64(s.fetches)); n < 3 || n > most {
		t.Errorf("%d fetches, at most %d", n, most)
	}
	if testutil.ToFloat64(s.missing.WithLabelValues("limited")) == 0 {
		t.Error("no pillar was limited")
	}
	m := s.mirrors[s.keys[0]]
	m.mu.Lock()
	m.spent = time.Time{}
	m.mu.Unlock()
	branch("later")
	if err := s.with.Lock(t.Context(), m.key, true); err != nil {
		t.Fatal(err)
	}
	if got := served("later"); got != "" {
		t.Errorf("locked: %q", got)
	}
	if err := s.with.Lock(t.Context(), m.key, false); err != nil {
		t.Fatal(err)
	}
	agreed.led.Store(false)
	if got := served("later"); got != "" {
		t.Errorf("without a leader: %q", got)
	}
	agreed.led.Store(true)
	if got := served("later"); got != "later" {
		t.Errorf("unlocked: %q", got)
	}
}

// sometimesLed is the agreement of a cluster that has a leader at times.
type sometimesLed struct {
	Agreement
	led atomic.Bool
}

func (s *sometimesLed) Leading() bool          { return s.led.Load() }
func (s *sometimesLed) Leader() (string, bool) { return "", false }
