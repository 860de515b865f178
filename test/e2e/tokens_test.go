package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stranger is a user of the system who is neither root nor the masters' user. He has his own
// programs and home.
type stranger struct {
	uid, gid  uint32
	bin, home string
}

func newStranger(t *testing.T, c *Cluster) stranger {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: another user's commands are run")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	dir := Folder(t)
	s := stranger{uint32(uid), uint32(gid), filepath.Join(dir, "bin"), filepath.Join(dir, "home")}
	err = errors.Join(err1, err2, os.Chmod(dir, 0o755), os.Mkdir(s.bin, 0o755),
		os.Mkdir(s.home, 0o700), os.Chown(s.home, uid, gid), os.Chmod(c.Dir, 0o711))
	if err != nil {
		t.Fatal(err)
	}
	program, err := filepath.EvalSymlinks(c.programs.Salt)
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(s.bin, "clustermaster"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(out, in)
		err = errors.Join(err, out.Close())
	}
	for _, name := range []string{"salt", "salt-run", "salt-key"} {
		err = errors.Join(err, os.Symlink("clustermaster", filepath.Join(s.bin, name)))
	}
	for _, m := range c.Masters { // files of a master's configuration that another user may read
		client := filepath.Join(m.Dir, "client")
		err = errors.Join(err, os.Chmod(m.Dir, 0o711), os.Mkdir(client, 0o755),
			os.WriteFile(filepath.Join(client, "master"),
				[]byte(fmt.Sprintf("sock_dir: %s/run\nlog_level: error\nlog_file: /dev/null\n",
					m.Dir)), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a command at a master, to its end.
func (s stranger) run(t *testing.T, m *Master, name string, args ...string) Result {
	t.Helper()
	return s.command(t, name, append([]string{"-c", filepath.Join(m.Dir, "client")}, args...)...)
}

func (s stranger) command(t *testing.T, name string, args ...string) Result {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.bin, name), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(Instruments(), "HOME="+s.home, "PATH=/usr/bin:/bin")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.gid}}
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return Result{Command: name + " " + strings.Join(args, " "), Stdout: stdout.String(),
		Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// TestTokensOutliveMasters: another user of the system logs in as a user of external_auth and makes
// a token. The token is valid on the other masters when its maker is dead, and on none once it is
// deleted.
func TestTokensOutliveMasters(t *testing.T) {
	t.Parallel()
	HAProxyProgram(t)
	c := NewCluster(t, ClusterOptions{})
	users := filepath.Join(c.Dir, "users")
	if err := os.WriteFile(users, []byte("carol:carols-word\ndave:daves-word\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Masters {
		m.Configure(t, m.Config(t)+"external_auth:\n  file:\n    ^filename: "+users+
			"\n    carol: ['test.*', '@test', '@key']\n    dave: ['test.version']\n")
	}
	s := newStranger(t, c)
	c.Start(t)
	c.AddMinions(t, "minion", quick, "3008.3")
	m1, m2, m3 := c.Masters[0], c.Masters[1], c.Masters[2]
	acceptAll(t, c, m1)
	Eventually(t, 2*time.Minute, "the minion answers", func() error {
		if got, r := m1.Ping(t, "-t", "5"); !slices.Equal(got, c.IDs()) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	id := c.IDs()[0]
	expect := func(r Result, code int, stdout string) {
		t.Helper()
		if r.Code != code || strings.TrimSpace(r.Stdout) != stdout {
			t.Errorf("want exit %d and %q\n%v", code, stdout, r)
		}
	}
	const stranger, refused = "Authentication error occurred.", "Authorization error occurred."
	carol := []string{"-a", "file", "--username", "carol", "--password", "carols-word"}
	dave := []string{"-a", "file", "--username", "dave", "--password", "daves-word"}
	with := func(who []string, args ...string) []string {
		return append(slices.Clone(who),
			args...)
	}

	expect(s.run(t, m1, "salt", "*", "test.ping", "--out=txt"), 0, stranger)
	expect(s.run(t, m1, "salt", with(carol, "--out=txt", "*", "test.ping")...), 0, id+": True")
	expect(s.run(t, m1, "salt", with(dave, "--out=txt", "*", "test.ping")...), 0, refused)
	expect(s.run(t, m1, "salt-run", with(dave, "--out=json", "test.arg", "x")...), 0,
		`"Authentication failure of type \"eauth\" occurred for user dave."`)
	expect(s.run(t, m1, "salt-key", "--eauth", "file", "--username", "carol", "--password",
		"carols-word", "-l", "acc"), 0, "Accepted Keys:\n"+id)
	if r := s.run(t, m1, "salt-run", "test.arg", "x"); r.Code == 0 ||
		!strings.Contains(r.Stdout, "only root") {
		t.Errorf("a runner without credentials: %v", r)
	}
	expect(s.run(t, m1, "salt", with(carol, "-T", "--out=txt", "*", "test.ping")...), 0,
		id+": True")
	b, err := os.ReadFile(filepath.Join(s.home, "salt_token"))
	info, statErr := os.Stat(filepath.Join(s.home, "salt_token"))
	if err := errors.Join(err, statErr); err != nil || len(b) != 64 || info.Mode().Perm() != 0o600 {
		t.Fatalf("the token file has %q, %v", b, err)
	}
	expect(s.run(t, m2, "salt", "--out=txt", "*", "test.ping"), 0, id+": True")

	m1.Kill(t)
	c.WaitReady(t, time.Minute, m2, m3)
	Eventually(t, time.Minute, "the token is good on m2 and the minion answers there",
		func() error {
			if r := s.run(t, m2, "salt", "--out=txt", "*",
				"test.ping"); strings.TrimSpace(r.Stdout) != id+": True" {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	expect(s.run(t, m2, "salt", "--out=txt", "*", "cmd.run", "id"), 0, refused)
	expect(s.run(t, m3, "salt-run", "-a", "file", "--out=json", "test.arg", "x"), 0,
		"{\n    \"args\": [\n        \"x\"\n    ],\n    \"kwargs\": {}\n}")
	if r := m3.Runner(t, "auth.del_token", string(b)); strings.TrimSpace(r.Stdout) != "True" {
		t.Errorf("delete the token: %v", r)
	}
	expect(s.run(t, m2, "salt", "--out=txt", "*", "test.ping"), 0, stranger)
	expect(s.run(t, m3, "salt-run", "-a", "file", "--out=json", "test.arg", "x"), 0,
		`"Authentication failure of type \"token\" occurred."`)
	m1.Run(t)
	c.WaitReady(t, time.Minute, c.Masters...)
	expect(s.run(t, m1, "salt", "--out=txt", "*", "test.ping"), 0, stranger)

	for _, m := range c.Masters {
		if text, err := os.ReadFile(m.Log); err != nil ||
			strings.Contains(string(text), "carols-word") ||
			strings.Contains(string(text), string(b)) {
			t.Errorf("the log of %s has a password or a token: %v", m.ID, err)
		}
	}
}
