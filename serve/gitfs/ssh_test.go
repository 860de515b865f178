package gitfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"clustermaster/test/sshtest"
)

// sshServer is a real sshd with repositories behind it.
type sshServer struct{ *sshtest.Server }

func startSSH(t *testing.T) sshServer { return sshServer{sshtest.Start(t, "127.91.15.1")} }

// url is a repository behind the server.
func (s sshServer) url(r *repo) string {
	return fmt.Sprintf("ssh://%s@%s:%d%s", s.User, s.Addr, s.Port, r.dir)
}

// TestSSH fetches from a real sshd with keys, passphrases, known hosts and an agent, for gitfs and
// for git_pillar. What is wrong is one line with remote and option.
func TestSSH(t *testing.T) {
	srv := startSSH(t)
	r := newRepo(t)
	r.write(map[string]string{"a": "over ssh", "top.sls": "{}"})
	r.commit("one")
	plain, sealed := srv.Accepts(t, "plain", ""), srv.Accepts(t, "it's sealed", "pass $'phrase")
	stranger := srv.Key(t, "stranger", "")
	loose, noKey := srv.Accepts(t, "loose", ""), filepath.Join(srv.Dir, "no key")
	if err := os.Chmod(loose, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(noKey, []byte("no key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	known := srv.Known(t, "known hosts", filepath.Join(srv.Dir, "host"))
	url := srv.url(r)
	t.Setenv("SSH_AUTH_SOCK", "")
	for _, c := range []struct {
		name, known string
		options     []any
		want        string // of the error; "" for none
	}{
		{"key", known, []any{"pubkey", plain + ".pub", "privkey", plain}, ""},
		{"key with passphrase", known, []any{"pubkey", sealed + ".pub", "privkey", sealed,
			"passphrase", "pass $'phrase"}, ""},
		{"wrong passphrase", known, []any{"privkey", sealed, "passphrase", "secretword"},
			"option passphrase: it is wrong"},
		{"no passphrase", known, []any{"privkey", sealed}, "option passphrase: it is not set"},
		{"strange key", known, []any{"privkey", stranger},
			"option privkey: the server does not accept"},
		{"no key", known, []any{"privkey", noKey}, "is not a private key"},
		{"loose key", known, []any{"privkey", loose}, "chmod 600"},
		{"unknown host", srv.Known(t, "empty", ""), []any{"privkey", plain},
			fmt.Sprintf("option git_known_hosts: the host key of [%s]:%d is not known", srv.Addr,
				srv.Port)},
		{"unknown host, passphrase", filepath.Join(srv.Dir, "absent"),
			[]any{"privkey", sealed, "passphrase", "pass $'phrase"}, "option git_known_hosts: "},
		{"unknown host, ssh's own files", "", []any{"privkey", plain},
			"is not known; check it with the server's administrator and add it to ~/.ssh/known_hosts"},
		{"changed host", srv.Known(t, "changed", stranger), []any{"privkey", plain},
			fmt.Sprintf("option git_known_hosts: the host key of [%s]:%d has changed", srv.Addr,
				srv.Port)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// Beside it is a remote that works.
			s, log := open(t, Options{KnownHosts: c.known},
				with(url, append([]any{"name", "states"}, c.options...)...),
				with("file://"+r.dir, "mountpoint", "beside"))
			key := s.files[0].key
			for range 2 {
				o := s.round(t.Context(), s.keys)[key]
				if (o.Err == nil) != (c.want == "") || o.Err != nil &&
					!strings.Contains(o.Err.Error(), c.want) {
					t.Errorf("got %v, want %q", o.Err, c.want)
				}
			}
			if got := s.read(t, "a", "base"); c.want == "" && got != "over ssh" {
				t.Errorf("served %q", got)
			}
			if got := s.read(t, "beside/a", "base"); got != "over ssh" {
				t.Errorf("the remote beside it: served %q", got)
			}
			said := strings.Count(log.String(), "gitfs remote states can't be updated: ")
			if c.want == "" && said != 0 || c.want != "" && said != 1 {
				t.Errorf("the error is said %d times: %s", said, log)
			}
			if strings.Contains(log.String(), "secretword") {
				t.Errorf("the log shows a passphrase: %s", log)
			}
		})
	}
	t.Run("host changes", func(t *testing.T) {
		t.Parallel()
		known := srv.Known(t, "changes", filepath.Join(srv.Dir, "host"))
		r := newRepo(t)
		r.write(map[string]string{"a": "1"})
		r.commit("one")
		s, log := open(t, Options{KnownHosts: known}, with(srv.url(r), "privkey", plain))
		s.all(t)
		r.write(map[string]string{"a": "2"})
		r.commit("two")
		srv.Known(t, "changes", stranger)
		s.all(t)
		if got := s.read(t, "a", "base"); got != "1" {
			t.Errorf("served %q, want the last commit of before", got)
		}
		if !strings.Contains(log.String(), "has changed, or somebody poses as the server") {
			t.Errorf("the log: %s", log)
		}
		srv.Known(t, "changes", filepath.Join(srv.Dir, "host"))
		s.all(t)
		if got := s.read(t, "a", "base"); got != "2" {
			t.Errorf("once the key is right again: served %q", got)
		}
	})
	t.Run("pillar", func(t *testing.T) {
		t.Parallel()
		right := []any{with("master "+url, "name", "pillars", "privkey", sealed, "pubkey",
			sealed+".pub", "passphrase", "pass $'phrase")}
		wrong := []any{with("master "+url, "name", "wrong", "privkey", stranger)}
		var conf []Config
		for _, remotes := range [][]any{right, wrong} {
			conf = append(conf, Config{Role: RolePillar, Remotes: remotes,
				Global: func(option string) any { return defaults[option] }})
		}
		dir, log := t.TempDir(), &bytes.Buffer{}
		s, problems, err := New(Options{Dir: dir, CacheDir: dir, KnownHosts: known, Pillars: conf},
			newAlone(), nil, slog.New(slog.NewTextHandler(log, nil)), nil)
		if err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
		defer s.Close()
		s.all(t)
		trees, err := s.Pillars(t.Context(), right, "", "")
		if err != nil || len(trees) != 1 {
			t.Fatalf("got %v, %v, want one tree", trees, err)
		}
		if _, data, ok, err := trees[0].Open(t.Context(), "a"); !ok || string(data) != "over ssh" {
			t.Errorf("a: %q, %v, %v", data, ok, err)
		}
		want := "git_pillar remote wrong can't be updated: git fetch: option privkey: "
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q is said %d times: %s", want, n, log)
		}
	})
}

// TestSSHAgent fetches with a key that only an agent has.
func TestSSHAgent(t *testing.T) {
	srv := startSSH(t)
	r := newRepo(t)
	r.write(map[string]string{"a": "by an agent"})
	r.commit("one")
	known := srv.Known(t, "known", filepath.Join(srv.Dir, "host"))
	key := srv.Accepts(t, "agent's", "")
	socket := filepath.Join(t.TempDir(), "agent")
	ctx, stop := context.WithCancel(t.Context())
	agent := exec.CommandContext(ctx, "ssh-agent", "-D", "-a", socket)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = agent.Wait() })
	t.Setenv("SSH_AUTH_SOCK", socket)
	deadline := time.Now().Add(20 * time.Second)
	for {
		out, err := exec.Command("ssh-add", "-q", key).CombinedOutput()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("ssh-add: %v %s", err, out)
		}
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	s, log := open(t, Options{KnownHosts: known}, srv.url(r))
	s.all(t)
	if got := s.read(t, "a", "base"); got != "by an agent" {
		t.Errorf("served %q; the log: %s", got, log)
	}
	t.Setenv("SSH_AUTH_SOCK", "")
	for _, o := range s.all(t) {
		if o.Err == nil || !strings.Contains(o.Err.Error(), "option privkey: it is not set") {
			t.Errorf("without the agent: %v", o.Err)
		}
	}
}

// TestSSHServerThatAsks has a server that refuses the key, and asks for a passphrase, as ssh does
// and otherwise: it gets nothing.
func TestSSHServerThatAsks(t *testing.T) {
	t.Parallel()
	files := sshtest.Server{Dir: t.TempDir()}
	sealed := files.Key(t, "sealed", "topsecret")
	files.Key(t, "host", "")
	text, err := os.ReadFile(filepath.Join(files.Dir, "host"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := ssh.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	files.Addr, files.Port = "127.0.0.1", ln.Addr().(*net.TCPAddr).Port
	known := files.Known(t, "known", filepath.Join(files.Dir, "host"))
	var mu sync.Mutex // guards tried and told
	tried, told := 0, []string(nil)
	conf := &ssh.ServerConfig{
		PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
			mu.Lock()
			defer mu.Unlock()
			tried++
			return nil, errors.New("not this key")
		},
		PasswordCallback: func(_ ssh.ConnMetadata, word []byte) (*ssh.Permissions, error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, "password "+string(word))
			return nil, errors.New("not this password")
		},
		KeyboardInteractiveCallback: func(_ ssh.ConnMetadata,
			ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"passphrase:", "Enter passphrase for key '" + sealed + "': "},
				[]bool{false, false})
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf("answers %q, %v", answers, err))
			return nil, errors.New("not these answers")
		},
	}
	conf.AddHostKey(host)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _, _, _ = ssh.NewServerConn(c, conf)
			}()
		}
	}()
	s, log := open(t, Options{KnownHosts: known}, with(
		fmt.Sprintf("ssh://passphrase@127.0.0.1:%d/x", files.Port), "privkey", sealed, "pubkey",
		sealed+".pub", "passphrase", "topsecret"))
	for _, o := range s.all(t) {
		if o.Err == nil || !strings.Contains(o.Err.Error(), "option privkey: the server does not accept") {
			t.Errorf("got %v; the log: %s", o.Err, log)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if tried == 0 || len(told) > 0 {
		t.Errorf("the key was tried %d times; the server was told %q", tried, told)
	}
	// A jump host of ssh's own configuration can ask, too: these options don't reach it.
	for prompt, want := range map[string]string{
		"Enter passphrase for key '" + sealed + "': ": "topsecret\n",
		"passphrase:": "",
		"(git@jump.example) Enter passphrase for key '" + sealed + "':": "",
		"passphrase@jump.example's password: ":                          "",
	} {
		cmd := exec.Command(filepath.Join(s.opts.Dir, "askpass"), prompt)
		cmd.Env = []string{"CM_GIT_PASSPHRASE=topsecret"}
		if out, err := cmd.Output(); string(out) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", prompt, out, err)
		}
	}
}
