package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAUserWithoutRights: beside a running master, a user that may not ask it is told so, and not
// that no master runs or that another program has its ports. salt says what Salt's says.
func TestAUserWithoutRights(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, ClusterOptions{Masters: 1})
	s := newStranger(t, c)
	m := c.Masters[0]
	m.Configure(t, withoutCluster(m.Config(t)))
	m.Run(t)
	c.WaitReady(t, 30*time.Second, m)
	conf := filepath.Join(m.Dir, "client")
	const want = "this user may not connect to the master's socket "
	for _, r := range []Result{s.command(t, "clustermaster", "status", "-c", conf),
		s.command(t, "clustermaster", "doctor", "-c", conf), s.run(t, m, "salt-key", "-L")} {
		said := r.Stdout + r.Stderr
		if r.Code == 0 || !strings.Contains(said, want) {
			t.Errorf("want %q, got %v", want, r)
		}
		for _, wrong := range []string{"no master", "does not run", "another program"} {
			if strings.Contains(said, wrong) {
				t.Errorf("%q in %v", wrong, r)
			}
		}
	}
	if r := s.run(t, m, "salt", "*", "test.ping"); r.Code != 0 ||
		!strings.Contains(r.Stdout, "The salt master could not be contacted. Is master running?") {
		t.Errorf("%v", r)
	}
}

// TestUser: a master that root starts, as the unit does, runs as another user: in an empty tree,
// and in one that a master of root left. It owns its own folders and no others.
func TestUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it starts a master that becomes another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"nothing", "a master of root"} {
		t.Run("after "+before, func(t *testing.T) {
			t.Parallel()
			c := NewCluster(t, ClusterOptions{Masters: 1})
			m := c.Masters[0]
			if err := errors.Join(os.Chmod(c.Dir, 0o711), os.Chmod(m.Dir, 0o711),
				os.WriteFile(filepath.Join(m.Dir, "srv", "top.sls"), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer("/pki\n", "/etc/salt/pki/master\n",
				"/cache\n", "/var/cache/salt/master\n", m.Dir+"/run", m.Dir+"/run/salt/master",
				"/master.pid", "/run/salt-master.pid",
				"/master.log", "/var/log/salt/master").
				Replace(regexp.MustCompile(`(?m)^cluster_.*\n`).ReplaceAllString(m.Config(t), ""))
			m.Log = filepath.Join(m.Dir, "var/log/salt/master")
			m.Configure(t, text)
			start := func() {
				m.Start(t, "/bin/sh", "-c", `umask 0027; exec "$@"`, "sh", m.programs.Master, "-c",
					m.ConfDir)
				c.WaitReady(t, 60*time.Second, m)
			}
			cache := filepath.Join(m.Dir, "var/cache/salt/master")
			kept := map[string]bool{} // root's, as they were
			if before != "nothing" {
				start()
				m.Key(t, "--gen-keys=web", "--gen-keys-dir="+m.Dir+"/etc/salt/pki/master")
				m.Stop(t, 20*time.Second)
				for name, err := range map[string]error{
					"jobs/ab/cd/jid": os.MkdirAll(filepath.Join(cache, "jobs/ab/cd/jid"), 0o700),
					".alice_key":     os.WriteFile(filepath.Join(cache, ".alice_key"), nil, 0o600),
					"linked":         os.Link(filepath.Join(m.Dir, "srv", "top.sls"), filepath.Join(cache, "linked")),
					"out":            os.Symlink(filepath.Join(m.Dir, "srv"), filepath.Join(cache, "out")),
				} {
					if err != nil {
						t.Fatal(err)
					}
					kept[filepath.Join(cache, name)] = true
				}
				kept[filepath.Join(cache, "jobs/ab/cd")] = true // Salt's jobs may be millions of files
				kept[filepath.Join(cache, ".root_key")] = true
			}
			m.Configure(t, strings.Replace(text, "user: root", "user: nobody", 1))
			start()
			if got := ProcStatus(t, m.PID(), "Uid"); !slices.Equal(got, slices.Repeat([]string{nobody.Uid}, 4)) {
				t.Errorf("the master has the user ids %v", got)
			}
			if r := m.Key(t, "-L"); r.Code != 0 || !strings.Contains(r.Stdout, "Accepted Keys:") {
				t.Errorf("root's salt-key: %v", r)
			}
			for _, dir := range []string{m.Dir + "/etc/salt/pki/master", cache, m.Dir + "/run/salt/master"} {
				err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
					if errors.Is(err, fs.ErrNotExist) {
						return nil
					}
					if err != nil {
						return err
					}
					info, err := d.Info()
					if errors.Is(err, fs.ErrNotExist) {
						return nil
					}
					if err != nil {
						return err
					}
					want := nobody.Uid
					if kept[p] {
						want = "0"
					}
					if got := owner(info); got != want {
						t.Errorf("%s belongs to %s, not %s", p, got, want)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
			for path, want := range map[string]string{
				"srv": "0", "srv/top.sls": "0", "etc/salt/pki": "0", "var/log/salt": "0", "run/salt": "0",
				"var/log/salt/master": nobody.Uid, "run/salt-master.pid": nobody.Uid,
			} {
				info, err := os.Lstat(filepath.Join(m.Dir, path))
				if err != nil {
					t.Error(err)
					continue
				}
				if got := owner(info); got != want {
					t.Errorf("%s belongs to %s, not %s", path, got, want)
				}
				if info.IsDir() && info.Mode().Perm() != 0o755 {
					t.Errorf("%s has mode %v: others can't pass", path, info.Mode())
				}
			}
			if err := fileHas(filepath.Join(m.Dir, "run/salt-master.pid"), strconv.Itoa(m.PID()))(); err != nil {
				t.Error(err)
			}
			if code, _ := m.Stop(t, 20*time.Second); code != 0 {
				t.Errorf("the master ended with exit code %d", code)
			}
			if b, err := os.ReadFile(filepath.Join(m.Dir, "run/salt-master.pid")); err != nil || len(b) > 0 {
				t.Errorf("the pidfile in root's folder still names %q: %v", b, err)
			}
			if before == "nothing" {
				return
			}
			// A link that the user made leads root nowhere.
			outside := filepath.Join(m.Dir, "outside")
			if err := errors.Join(os.Mkdir(outside, 0o755), os.RemoveAll(cache),
				os.Symlink(outside, cache)); err != nil {
				t.Fatal(err)
			}
			uid, _ := strconv.Atoi(nobody.Uid)
			if err := os.Lchown(cache, uid, 0); err != nil {
				t.Fatal(err)
			}
			m.Start(t, m.programs.Master, "-c", m.ConfDir)
			if code, err := m.Wait(20 * time.Second); err != nil || code != 1 {
				t.Errorf("with a link of the user as cachedir: exit code %d, %v", code, err)
			}
			if info, err := os.Lstat(outside); err != nil || owner(info) != "0" {
				t.Errorf("the user got the folder behind its link: %v", err)
			}
		})
	}
}

func owner(info fs.FileInfo) string {
	return fmt.Sprint(info.Sys().(*syscall.Stat_t).Uid)
}
