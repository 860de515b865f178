package cli

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"clustermaster/config"
	"clustermaster/serve/operator"
)

func TestSavedToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	if got := savedToken(path, time.Hour); got != "" {
		t.Errorf("no file: %q", got)
	}
	if err := os.WriteFile(path, []byte("older"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := saveToken(path, "tok"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if got := savedToken(path, time.Hour); got != "tok" || err != nil ||
		info.Mode().Perm() != 0o600 {
		t.Errorf("%q, mode %v, %v", got, info.Mode(), err)
	}
	old := time.Now().Add(-time.Hour - time.Minute)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	if got := savedToken(path, time.Hour); got != "" {
		t.Errorf("an old one: %q", got)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := saveToken(link, "other"); err == nil {
		t.Error("a token was written through a symbolic link")
	}
	if got := savedToken(t.TempDir(), time.Hour); got != "" {
		t.Errorf("a folder: %q", got)
	}
}

func TestTokenFile(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	env := func(vars map[string]string) Env { return Env{Getenv: func(name string) string { return vars[name] }} }
	plain, xdg := env(map[string]string{"HOME": home}), env(map[string]string{"HOME": home,
		"XDG_CONFIG_HOME": filepath.Join(home, "xdg")})
	o := new(config.Options)
	is := func(e Env, want string) {
		t.Helper()
		if got := e.tokenFile(o); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	is(plain, filepath.Join(home, "salt_token"))
	is(xdg, filepath.Join(home, "salt_token"))
	for _, dir := range []string{".config/salt", "xdg/salt"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	is(plain, filepath.Join(home, ".config/salt/salt_token"))
	is(xdg, filepath.Join(home, "xdg/salt/salt_token"))
	o.TokenFile = "~/mine"
	is(plain, filepath.Join(home, "mine"))
	o.TokenFile = "/var/tmp/mine"
	is(plain, "/var/tmp/mine")
}

func TestLogin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stdin string
		args        []string
		want        []operator.Credentials
		stdout      string
		code        int
	}{
		{"given", "", []string{"-a", "pam", "--username", "carol", "--password", "right", "web1",
			"test.ping"}, []operator.Credentials{{Eauth: "pam", Username: "carol",
			Password: "right"}}, "web1:\n    True\n", 0},
		{"typed", "carol\nright\n", []string{"-a", "pam", "web1", "test.ping"},
			[]operator.Credentials{{Eauth: "pam", Username: "carol", Password: "right"}},
			"username: web1:\n    True\n", 0},
		{"wrong", "", []string{"-a", "pam", "--username", "carol", "--password", "x", "web1",
			"test.ping"}, []operator.Credentials{{Eauth: "pam", Username: "carol", Password: "x"}},
			"Authentication error occurred.\n", 0},
		{"a token", "", []string{"-a", "pam", "--username", "carol", "--password", "right", "-T",
			"web1", "test.ping"}, []operator.Credentials{{Token: "tok"}}, "web1:\n    True\n", 0},
		{"no back end", "", []string{"-a", "mysql", "--username", "carol", "--password", "right",
			"web1", "test.ping"}, nil,
			"The specified external authentication system \"mysql\" is not available\nAvailable eauth types: auto, file, ldap, pam, rest, sharedsecret\n", 2},
		{"nothing typed", "", []string{"-a", "pam", "web1", "test.ping"}, nil, "username: ", 1},
		{"as oneself", "", []string{"web1", "test.ping"}, nil, "web1:\n    True\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := &fakeDaemon{minions: map[string]minion{"web1": {answer: true}}}
			home := t.TempDir()
			d.home = home
			got := run(t, Salt, d, c.stdin, c.args...)
			if got.code != c.code || got.stdout != c.stdout || len(d.logins) != len(c.want) {
				t.Fatalf("exit %d, %q, %q, %v", got.code, got.stdout, got.stderr, d.logins)
			}
			for i := range c.want {
				if d.logins[i] != c.want[i] {
					t.Errorf("%+v", d.logins[i])
				}
			}
			b, err := os.ReadFile(filepath.Join(home, "salt_token"))
			if c.name == "a token" && (err != nil || string(b) != "tok") || c.name != "a token" &&
				err == nil {
				t.Errorf("saved %q, %v", b, err)
			}
		})
	}
}
