package auth_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/salt/render"
	"clustermaster/serve/auth"
	"clustermaster/test/unpacked"
)

// services are files of /etc/pam.d that go away with the test.
func services(t *testing.T, files map[string]string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: files of /etc/pam.d and a user are made")
	}
	for name, text := range files {
		path := filepath.Join("/etc/pam.d", name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path) })
	}
}

// system runs a command that changes the system's users.
func system(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", args, err, out)
	}
}

// account makes a user of the system in a group of its own.
func account(t *testing.T, user, group, password string) {
	t.Helper()
	system(t, "", "groupadd", group)
	t.Cleanup(func() { system(t, "", "groupdel", group) })
	system(t, "", "useradd", "--no-create-home", "--no-user-group", "--gid", group, "--groups",
		"games", "--shell", "/usr/sbin/nologin", user)
	t.Cleanup(func() { system(t, "", "userdel", user) })
	system(t, user+":"+password+"\n", "chpasswd")
}

func TestPAM(t *testing.T) {
	const password = "pässwörd with $pace"
	suffix := fmt.Sprint(os.Getpid())
	unix, permit, deny, expired, asks, slow := "cmunix"+suffix, "cmpermit"+suffix, "cmdeny"+
		suffix, "cmexpired"+suffix, "cmasks"+suffix, "cmslow"+suffix
	services(t, map[string]string{
		unix:    "auth required pam_unix.so\naccount required pam_unix.so\n",
		permit:  "auth required pam_permit.so\naccount required pam_permit.so\n",
		deny:    "auth required pam_deny.so\naccount required pam_permit.so\n",
		expired: "auth required pam_permit.so\naccount required pam_deny.so\n",
		asks: "auth required pam_exec.so expose_authtok quiet /usr/bin/grep -qx " +
			"sesame\naccount required pam_permit.so\n",
		slow: "auth required pam_exec.so quiet /usr/bin/sleep 10\naccount required pam_permit.so\n",
	})
	user, group := "cmuser"+suffix, "cmgroup"+suffix
	account(t, user, group, password)
	r := render.New(render.Options{Dir: unpacked.Dir()}, nil, nil)
	t.Cleanup(func() { r.Close() })
	// unpacks, which takes a busy machine longer than an answer may
	if _, err := r.Interpreter(); err != nil {
		t.Fatal(err)
	}
	for name, python := range map[string]auth.Python{
		"the system's Python": func(context.Context) ([]string,
			error) {
			return []string{"/usr/bin/python3", "-I"}, nil
		},
		"the embedded Python": func(context.Context) ([]string, error) { return r.Interpreter() },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "the system's Python" {
				if _, err := os.Stat("/usr/bin/python3"); err != nil {
					t.Skip("needs /usr/bin/python3")
				}
			}
			var wg sync.WaitGroup
			slots := make(chan struct{}, 3) // a busy machine starts few Pythons within the limit
			for _, c := range []struct {
				service, user, word string
				ok                  bool
			}{
				{unix, user, password, true}, {unix, user, password + "x", false},
				{unix, user, "", false}, {unix, "nosuchuser" + suffix, password, false},
				{permit, user, "anything", true}, {deny, user, password, false},
				{expired, user, password, false},
				{asks, user, "sesame", true}, {asks, user, "sesam", false},
			} {
				wg.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					a, _, said := opened(t, auth.Options{
						External: dict("pam",
							dict(group+"%", list("test.*"), "games%", list("@runner"))),
						BackEnds: dict("auth.pam.service", c.service),
					}, auth.Deps{Python: python})
					id, err := a.Authenticate(t.Context(), "10.0.0.1", creds("pam", c.user, c.word))
					if c.ok != (err == nil) || !c.ok && !errors.Is(err, auth.ErrRefused) {
						t.Errorf("service %s: %s with %q: %v\n%s", c.service, c.user, c.word,
							err, said)
					}
					if c.ok && err == nil &&
						(len(id.Groups) != 2 ||
							allowed(t, id) != "test.ping test.version saltutil.find_job runner") {
						t.Errorf("groups %v", id.Groups)
					}
					if strings.Contains(said.String(), password) {
						t.Errorf("the log has the password:\n%s", said)
					}
				})
			}
			wg.Wait()
		})
	}
	t.Run("a module that hangs", func(t *testing.T) {
		a, _, _ := opened(t, auth.Options{External: dict("pam", dict(user, list(".*"))),
			BackEnds: dict("auth.pam.service", slow)}, auth.Deps{
			Python: func(context.Context) ([]string, error) { return r.Interpreter() },
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := a.Authenticate(ctx, "10.0.0.1", creds("pam", user, password)); err == nil ||
			time.Since(began) > 9*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
	t.Run("no interpreter", func(t *testing.T) {
		a, _, said := opened(t, auth.Options{External: dict("pam", dict(user, list(".*")))},
			auth.Deps{
				Python: func(context.Context) ([]string,
					error) {
					return []string{"/nonexistent/python"}, nil
				},
			})
		if _, err := a.Authenticate(t.Context(), "10.0.0.1",
			creds("pam", user, password)); !errors.Is(err, auth.ErrRefused) ||
			!strings.Contains(said.String(), "calls libpam") {
			t.Errorf("%v\n%s", err, said)
		}
	})
}
