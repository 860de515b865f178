package migrate

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermaster/config"
	"clustermaster/keystore"
	"clustermaster/serve/operator"
	"clustermaster/value"
)

// box is a configuration with the keys of a master of Salt. ln has its return port.
func box(t *testing.T) (dir string, ln net.Listener) {
	t.Helper()
	dir = t.TempDir()
	if signal.Ignored(syscall.SIGHUP) { // the tests run below nohup
		heard := make(chan os.Signal, 1)
		signal.Notify(heard, syscall.SIGHUP)
		t.Cleanup(func() { signal.Stop(heard) })
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	pub, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(5), 2045), E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "pki", "master.pub"),
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})))
	put(t, filepath.Join(dir, "etc", "master"), fmt.Sprintf("id: box\ninterface: 127.0.0.1\nroot_dir: %s\n"+
		"pki_dir: %[1]s/pki\ncachedir: %[1]s/cache\nsock_dir: %[1]s/sock\npidfile: %[1]s/pid\nret_port: %d\n", dir,
		ln.Addr().(*net.TCPAddr).Port))
	for _, name := range []string{"cache", "sock"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(dir, "pki", keystore.Accepted.String(), "web1"), "key")
	return dir, ln
}

// TestHangUp: apply whose terminal goes puts Salt's master back. A command that does not end by
// then, nor at SIGTERM, ends with all that it has started before --undo runs.
func TestHangUp(t *testing.T) {
	dir, _ := box(t)
	pids, undone := filepath.Join(dir, "pids"), filepath.Join(dir, "undone")
	lived, ended := filepath.Join(dir, "lived"), filepath.Join(dir, "ended")
	var out, errs strings.Builder
	code := Command(t.Context(), []string{"apply", "-c", filepath.Join(dir, "etc"), "--wait", "1",
		"--stop", "(trap '' TERM; exec sleep 300) & echo $! > " + pids + "; trap : TERM; kill -HUP $PPID; " +
			"wait; kill -0 $! && touch " + lived + "; wait; touch " + ended,
		"--undo", "test -s " + pids + " && ! kill -0 $(cat " + pids + ") && touch " + undone}, nil, &out, &errs)
	said := out.String() + errs.String()
	for _, want := range []string{"interrupted; waits for the end of its command", "not done after 5s",
		"Salt's master was restored"} {
		if code != exitBlocked || !strings.Contains(said, want) {
			t.Errorf("exit %d without %q\n%s", code, want, said)
		}
	}
	if _, err := os.Stat(undone); err != nil {
		t.Errorf("--undo ran beside what --stop had started: %v\n%s", err, said)
	}
	_, err := os.Stat(lived)
	if _, no := os.Stat(ended); err != nil || no == nil {
		t.Errorf("what --stop had started did not live from SIGTERM to SIGKILL: %v\n%s", err, said)
	}
}

// TestPackagesAreFinished: a command goes on to its end when the terminal goes, and longer than
// --wait. A package manager that is killed leaves what lets the next one fail.
func TestPackagesAreFinished(t *testing.T) {
	for _, hangUp := range []string{"kill -HUP $PPID;", ""} {
		dir, _ := box(t) // its listener is in the way of the next step
		locked := filepath.Join(dir, "locked")
		var out, errs strings.Builder
		code := Command(t.Context(), []string{"apply", "-c", filepath.Join(dir, "etc"), "--wait", "2",
			"--stop", "touch " + locked + ";" + hangUp + "sleep 3; rm " + locked,
			"--undo", "sleep 3; test ! -e " + locked}, nil, &out, &errs)
		if code != exitBlocked || !strings.Contains(errs.String(), "Salt's master was restored") {
			t.Errorf("%q: exit %d\n%s%s", hangUp, code, &out, &errs)
		}
	}
}

// TestRollbackGoesOn: rollback does not end at SIGHUP. Nothing listens after its --start.
func TestRollbackGoesOn(t *testing.T) {
	dir, ln := box(t)
	ln.Close()
	j := &journal{Began: time.Now(), State: applied, Pki: filepath.Join(dir, "pki"),
		Sock: filepath.Join(dir, "sock"), Added: filepath.Join(dir, "etc", "master.d", "clustermaster.conf"),
		dir: stateDir(filepath.Join(dir, "cache"))}
	put(t, filepath.Join(j.dir, "before", "conf", "master"), "")
	if err := j.save(); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	started := filepath.Join(dir, "started")
	code := Command(t.Context(), []string{"rollback", "-c", filepath.Join(dir, "etc"), "--wait", "2", "--stop", "kill -HUP $PPID",
		"--start", "touch " + started}, nil, &out, &errs)
	if _, err := os.Stat(started); err != nil {
		t.Errorf("exit %d, %v\n%s%s", code, err, &out, &errs)
	}
}

// voter answers as a master with a vote beside another one. The other one accepts web2 while this
// one writes caches.
type voter struct {
	minions string // where it writes keys
	demoted string
	keys    []operator.Key
	stop    func()
}

func (v *voter) Lists(context.Context, bool) (operator.KeyLists, error) {
	return operator.KeyLists{Keys: v.keys}, nil
}

func (v *voter) Change(context.Context, operator.KeyChange) (operator.KeysChanged, error) {
	return operator.KeysChanged{}, nil
}

func (v *voter) Run(_ context.Context, r operator.RunRequest, _ func(string, any)) (operator.RunResult, error) {
	if r.Fun == "cluster.demote" {
		v.demoted = value.Str(r.Args[0])
		return operator.RunResult{Return: true}, nil
	}
	if r.Fun == "cluster.return_to_salt" {
		v.keys = append(v.keys, operator.Key{ID: "web2", State: "minions", Pub: "key"})
		return operator.RunResult{Return: value.Map{}}, os.WriteFile(filepath.Join(v.minions, "web2"), []byte("key"), 0o600)
	}
	return operator.RunResult{Return: value.Map{{Key: "node_id", Value: "box2"},
		{Key: "voters", Value: []any{"box1", "box2"}}}}, nil
}

func (*voter) Docs(string) value.Map { return nil }

// serveVoter has v answer in the place of the master of dir.
func serveVoter(t *testing.T, dir string, v *voter) *config.Options {
	t.Helper()
	s, err := operator.Listen(filepath.Join(dir, "sock"), operator.Deps{Runners: v, Keys: v,
		Log:    slog.New(slog.DiscardHandler),
		Status: func() operator.Status { return operator.Status{ID: "box2", Serving: true} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	v.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(v.stop)
	o, _, err := config.Load(filepath.Join(dir, "etc"), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestPutBackGivesUpVote: a failed apply leaves the founder its quorum.
func TestPutBackGivesUpVote(t *testing.T) {
	dir, _ := box(t)
	v := new(voter)
	o := serveVoter(t, dir, v)
	put(t, filepath.Join(dir, "pid"), fmt.Sprint(os.Getpid()))
	m := &migration{flags: flags{dir: filepath.Join(dir, "etc"), stop: "false", wait: 60}, out: io.Discard}
	j := &journal{Conf: m.dir, Added: filepath.Join(dir, "added"), Stopped: true, dir: t.TempDir()}
	put(t, j.keptConf(o.ConfFile), "pidfile: elsewhere\n")
	for _, pidfile := range []string{o.PidFile, filepath.Join(dir, "lost with the configuration")} {
		o.PidFile, v.demoted = pidfile, ""
		if err := m.putBack(t.Context(), j, o); err == nil || v.demoted != "box2" {
			t.Errorf("%s: demoted %q, %v", pidfile, v.demoted, err)
		}
	}
}

// TestRollbackTakesLateKeys: rollback counts the keys that the master has after its caches were
// written, and gives up the vote only once they are in the folder.
func TestRollbackTakesLateKeys(t *testing.T) {
	dir, _ := box(t)
	pki := filepath.Join(dir, "pki")
	v := &voter{minions: filepath.Join(pki, "minions"), keys: []operator.Key{{ID: "web1", State: "minions", Pub: "key"}}}
	o := serveVoter(t, dir, v)
	m := &migration{flags: flags{dir: filepath.Join(dir, "etc"), wait: 60}, out: io.Discard}
	j := &journal{Pki: pki}
	keys, err := m.prepare(t.Context(), j, o)
	if err != nil || len(keys) != 2 || v.demoted != "box2" {
		t.Errorf("%d keys, demoted %q, %v", len(keys), v.demoted, err)
	}
	v.demoted, v.minions, m.wait = "", t.TempDir(), 1
	v.keys = append(v.keys, operator.Key{ID: "web3", State: "minions", Pub: "key"})
	if _, err := m.prepare(t.Context(), j, o); err == nil || v.demoted != "" {
		t.Errorf("keys that are not written: demoted %q, %v", v.demoted, err)
	}
}

// TestRollbackAgain: keys that this master writes nowhere outlive a rollback that fails after the
// stop. One that finds no master and no such keys changes nothing.
func TestRollbackAgain(t *testing.T) {
	dir, ln := box(t)
	ln.Close() // nothing listens after --start
	shared := filepath.Join(dir, "shared")
	put(t, filepath.Join(shared, "minions", "web0"), "key") // deleted since
	put(t, filepath.Join(dir, "etc", "master.d", "cluster.conf"), "cluster_id: c\ncluster_secret: "+
		strings.Repeat("s", 40)+"\ncluster_pki_dir: "+shared+"\n")
	j := &journal{State: applied, Pki: shared, Added: filepath.Join(dir, "etc", "master.d", "clustermaster.conf"),
		dir: stateDir(filepath.Join(dir, "cache"))}
	put(t, filepath.Join(j.dir, "before", "conf", "master"), "")
	put(t, j.Added, "")
	if err := j.save(); err != nil {
		t.Fatal(err)
	}
	rollback := func(stop, wanted string, ids ...string) {
		t.Helper()
		var out, errs strings.Builder
		code := Command(t.Context(), []string{"rollback", "-c", filepath.Join(dir, "etc"), "--wait", "1", "--stop", stop,
			"--start", "true"}, nil, &out, &errs)
		got, err := keysIn(shared)
		if err != nil || code != exitBlocked || !strings.Contains(errs.String(), wanted) ||
			!slices.Equal(slices.Sorted(maps.Keys(got)), ids) {
			t.Errorf("%s: exit %d, keys %v, %v\n%s%s", wanted, code, got, err, &out, &errs)
		}
	}
	rollback("true", "start it, and run the command again", "web0")
	same(t, j.Added, "")
	v := &voter{minions: t.TempDir(), keys: []operator.Key{{ID: "web1", State: "minions", Pub: "key"}}}
	serveVoter(t, dir, v)
	rollback("false", "stop this master", "web0")
	v.stop()
	rollback("true", "does not listen", "web1", "web2")
	if err := os.Remove(filepath.Join(shared, "minions", "web2")); err != nil { // by Salt's master
		t.Fatal(err)
	}
	rollback("true", "does not listen", "web1")
}

// TestLostConfiguration: apply fails if --stop or --start takes a file of the configuration away or
// replaces it, and puts it back before --undo. After --stop it starts no master without the file.
func TestLostConfiguration(t *testing.T) {
	for _, c := range []struct{ stop, start string }{
		{"true", "rm"}, {"true", "echo id: other >"}, {"rm", "touch started #"},
	} {
		dir, ln := box(t)
		ln.Close() // nothing listens after --undo
		main := filepath.Join(dir, "etc", "master")
		text, err := os.ReadFile(main)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs strings.Builder
		code := Command(t.Context(), []string{"apply", "-c", filepath.Dir(main), "--wait", "2", "--stop", c.stop + " " + main,
			"--start", "cd " + dir + "; " + c.start + " " + main, "--undo", "cp " + main + " " + dir + "/undone"},
			nil, &out, &errs)
		if code != exitBlocked || !strings.Contains(errs.String(), "the configuration changed while Salt's package was replaced: "+main) {
			t.Errorf("%v: exit %d\n%s%s", c, code, &out, &errs)
		}
		same(t, filepath.Join(dir, "undone"), string(text))
		same(t, main, string(text))
		if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
			t.Errorf("%v: --start ran", c)
		}
	}
}

// TestRollbackRestoresMainFile: rollback puts the main file back, also if cachedir was only there,
// and does not take another file for it.
func TestRollbackRestoresMainFile(t *testing.T) {
	dir, _ := box(t)
	main := filepath.Join(dir, "etc", "master")
	text, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	o, _, err := config.Inspect(filepath.Dir(main), os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{Conf: filepath.Dir(main), State: applied, Added: addedFile(o), dir: stateDir(o.CacheDir)}
	kept := filepath.Join(j.dir, "before", "conf", "master")
	put(t, kept, string(text))
	if err := j.save(); err != nil {
		t.Fatal(err)
	}
	options, err := new(migration).newOptions(&Plan{options: o})
	if err != nil {
		t.Fatal(err)
	}
	put(t, j.Added, options)
	var out, errs strings.Builder
	rollback := func() int {
		return Command(t.Context(), []string{"rollback", "-c", j.Conf, "--stop", "false"}, nil, &out, &errs)
	}
	put(t, main, "cachedir: "+dir+"/other\n")
	if code := rollback(); code != exitBlocked || !strings.Contains(errs.String(), "the former file is "+kept) {
		t.Errorf("exit %d\n%s%s", code, &out, &errs)
	}
	if err := os.Remove(main); err != nil {
		t.Fatal(err)
	}
	rollback()
	if same(t, main, string(text)); t.Failed() {
		t.Log(&out, &errs)
	}
}
