// Package sshtest runs a real sshd for tests, as the user that runs them and with a configuration
// of its own.
package sshtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"
	"time"
)

// Server is an sshd that takes the keys that Accepts made.
type Server struct {
	Addr, User string
	Port       int
	Dir        string // of its files, and of all keys; the host's key is in the file host
	authorized string
}

// Start starts sshd on a free port of a loopback address. It ends with the test.
func Start(t testing.TB, addr string) *Server {
	t.Helper()
	const program = "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: install openssh-server", err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		// Root's sshd wants this folder, which Debian makes when the service starts.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &Server{User: me.Username, Dir: t.TempDir(), Addr: addr}
	s.authorized = filepath.Join(s.Dir, "authorized")
	s.Key(t, "host", "")
	if err := os.WriteFile(s.authorized, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", s.Addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	s.Port = ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	conf := filepath.Join(s.Dir, "sshd_config")
	text := fmt.Sprintf("Port %d\nListenAddress %s\nHostKey %s\nAuthorizedKeysFile %s\n"+
		"StrictModes no\nUsePAM no\nPidFile none\nMaxStartups 100\nSubsystem sftp internal-sftp\n"+
		"PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
		s.Port, s.Addr, filepath.Join(s.Dir, "host"), s.authorized)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, stop := context.WithCancel(context.Background())
	sshd := exec.CommandContext(ctx, program, "-D", "-e", "-f", conf)
	sshd.Stderr = &log
	if err := sshd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = sshd.Wait()
		if t.Failed() {
			t.Logf("sshd: %s", log.String())
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", s.Addr, s.Port), time.Second)
		if err == nil {
			c.Close()
			return s
		}
		if time.Now().After(deadline) {
			t.Fatal("sshd does not listen")
		}
	}
}

// Key makes a private key and returns its path; the public one lies beside it.
func (s *Server) Key(t testing.TB, name, passphrase string) string {
	t.Helper()
	file := filepath.Join(s.Dir, name)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", name,
		"-f", file).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v %s", err, out)
	}
	return file
}

// Accepts makes a key that the server accepts.
func (s *Server) Accepts(t testing.TB, name, passphrase string) string {
	t.Helper()
	file := s.Key(t, name, passphrase)
	pub, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(s.authorized, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(pub); err != nil {
		t.Fatal(err)
	}
	return file
}

// Known writes a file of known hosts that has a key for the server; "" leaves it empty.
func (s *Server) Known(t testing.TB, file, key string) string {
	t.Helper()
	line := ""
	if key != "" {
		pub, err := os.ReadFile(key + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		line = fmt.Sprintf("[%s]:%d %s", s.Addr, s.Port, pub)
	}
	file = filepath.Join(s.Dir, file)
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
