package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/serve/acl"
	"clustermaster/value"
)

// asUser names the folder of a socket to the process that plays another user.
const asUser = "CLUSTERMASTER_OPERATOR_SOCKET_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asUser); dir != "" {
		if os.Getenv(flooding) != "" {
			flood(dir)
			return
		}
		_ = json.NewEncoder(os.Stdout).Encode(callAll(dir)) // the parent sees what is missing
		return
	}
	os.Exit(m.Run())
}

// callAll tries everything and tells what came of it.
func callAll(dir string) map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out := map[string]string{}
	c, err := Dial(ctx, dir)
	if err != nil {
		out["dial"] = err.Error()
		return out
	}
	defer c.Close()
	say := func(what string, err error) {
		out[what] = "ok"
		if err != nil {
			out[what] = err.Error()
		}
	}
	publish := func(what, jid, user, fun string) {
		p, err := c.Publish(ctx, gather.Publish{Tgt: "*", Fun: fun, JID: jid, User: user})
		if say(what, err); err == nil {
			out[what] = p.Error
		}
	}
	listen := func(what, prefix string) {
		sub, err := c.Subscribe(ctx, prefix)
		if say(what, err); err == nil {
			sub.Close()
		}
	}
	made, err := c.NewJID(ctx)
	say("make a job id", err)
	listen("listen to a new job", "salt/job/"+made+"/")
	publish("publish", made, "root", "test.ping")
	publish("publish a blocked function", "", "", "cmd.run")
	listen("listen to an id of one's own choice", "salt/job/new1/")
	publish("publish with an id of one's own choice", "new1", "", "test.ping")
	publish("publish with the id of another's job", "roots", "", "test.ping")
	listen("listen to all", "salt/")
	listen("listen to everything", "")
	listen("listen to all jobs", "salt/job/")
	listen("listen to the beginning of an id", "salt/job/2")
	listen("listen to another's job", "salt/job/roots/")
	listen("listen to own job", "salt/job/own/")
	err = c.ReadReturns(ctx, "own", []string{"a"}, func(string, gather.Return) error { return nil })
	say("returns of own job", err)
	err = c.ReadReturns(ctx, "roots", []string{"a"},
		func(string, gather.Return) error { return nil })
	say("returns of another's job", err)
	err = c.ReadReturns(ctx, "claimed", []string{"a"},
		func(string, gather.Return) error { return nil })
	say("returns of a job that another waits for", err)
	_, err = c.Targets(ctx, "*", "glob", ":")
	say("targets", err)
	_, err = c.Lists(ctx, true)
	say("keys", err)
	_, err = c.Change(ctx, KeyChange{Action: "accept"})
	say("change keys", err)
	_, err = c.Run(ctx, RunRequest{Fun: "test.arg"}, func(string, any) {})
	say("run", err)
	_, err = c.Docs(ctx, "")
	say("docs", err)
	say("fire", c.Fire(ctx, "my/tag", value.Map{}))
	return out
}

// openFolder makes a folder that other users reach once it has been opened to them: the folder for
// temporary files may be closed to all but its owner.
func openFolder(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if !reachable(parent) {
			continue
		}
		dir, err := os.MkdirTemp(parent, "operator")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	t.Fatalf("other users reach neither %s nor /tmp and /var/tmp; set TMPDIR to a folder that all may enter", os.TempDir())
	return ""
}

// reachable tells whether any user may enter a folder.
func reachable(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err != nil || fi.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// other returns a user that is not the one of this process, and lets that user run this test's
// program.
func other(t *testing.T) (u *user.User, program string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: another user's process is started")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	dir := openFolder(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "program")
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	f, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = io.Copy(f, in)
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Chmod(program, 0o755) // whatever the umask
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u, program
}

// command runs this test's program as a user.
func command(t *testing.T, u *user.User, program, dir string, env ...string) *exec.Cmd {
	t.Helper()
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(env, asUser+"="+dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid),
		Gid: uint32(gid)}}
	return cmd
}

func callAs(t *testing.T, u *user.User, program, dir string) map[string]string {
	t.Helper()
	cmd := command(t, u, program, dir)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s as %s: %v\n%s", program, u.Username, err, &complaints)
	}
	var out map[string]string
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return out
}

func TestAnotherUser(t *testing.T) {
	t.Parallel()
	u, program := other(t)
	rules, err := acl.New(acl.Options{
		PublisherACL: value.Map{{Key: u.Username, Value: []any{".*"}}},
		Blacklist:    value.Map{{Key: "modules", Value: []any{"cmd.*"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	strangers, err := acl.New(acl.Options{PublisherACL: value.Map{{Key: "carol",
		Value: []any{".*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	const only = "only root and the user of the salt-master may run this command"
	allowed := map[string]string{
		"make a job id": "ok", "listen to a new job": "ok", "publish": "",
		"listen to an id of one's own choice":     "this job is not yours",
		"publish with an id of one's own choice":  "this job is not yours",
		"publish a blocked function":              acl.NotAuthorized,
		"publish with the id of another's job":    "this job is not yours",
		"listen to all":                           "this job is not yours",
		"listen to everything":                    "this job is not yours",
		"listen to all jobs":                      "this job is not yours",
		"listen to the beginning of an id":        "this job is not yours",
		"listen to another's job":                 "this job is not yours",
		"listen to own job":                       "ok",
		"returns of own job":                      "ok",
		"returns of another's job":                "this job is not yours",
		"returns of a job that another waits for": "this job is not yours",
		"targets": only, "keys": only, "change keys": only, "run": only, "docs": only,
		"fire": "only root and the user of the salt-master may fire events",
	}
	stranger := map[string]string{"listen to an id of one's own choice": "this job is not yours",
		"publish": acl.NotAuthenticated, "publish a blocked function": acl.NotAuthenticated}
	for _, c := range []struct {
		name  string
		rules *acl.Rules
		want  map[string]string
	}{
		{"of publisher_acl", rules, allowed},
		{"of no entry", strangers, stranger},
		{"without publisher_acl", nil, map[string]string{"dial": "permission denied"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := openFolder(t)
			d, root, _ := startWith(t, c.rules, dir,
				map[string]string{"roots": "root", "own": u.Username})
			d.server.claims.add("claimed", "user/12345")
			got := callAs(t, u, program, dir)
			for what, want := range c.want {
				// Refusals come with what a connection adds to them, "ok" and "" alone.
				if got[what] != want && (want == "" || want == "ok" ||
					!strings.Contains(got[what], want)) {
					t.Errorf("%s: %q, want %q", what, got[what], want)
				}
			}
			if c.rules == rules && (d.published.User != u.Username || d.rights == nil) {
				t.Errorf("published as %q with rights %v", d.published.User, d.rights)
			}
			if c.rules != rules && d.published.Fun != nil {
				t.Errorf("published %v", d.published)
			}
			// What a user listens for is nobody else's, not even root's.
			if _, err := root.Publish(t.Context(),
				gather.Publish{Tgt: "*", Fun: "test.ping", JID: "claimed"}); err == nil {
				t.Error("root got the id that a user listens for")
			}
		})
	}
}

func TestSudoers(t *testing.T) {
	t.Parallel()
	rules, err := acl.New(acl.Options{
		PublisherACL: value.Map{{Key: "carol", Value: []any{"test.*"}}}, SudoACL: true,
		Blacklist: value.Map{{Key: "users", Value: []any{"eve"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, c, _ := startWith(t, rules, t.TempDir(), nil)
	for _, ask := range []struct {
		user, refusal string
		limited       bool
	}{{"root", "", false}, {"sudo_carol", "", true}, {"sudo_dave", acl.NotAuthenticated,
		false}, {"eve", acl.NotAuthorized, false}, {"carol", "", false}} {
		got, err := c.Publish(t.Context(),
			gather.Publish{Tgt: "*", Fun: "test.ping", User: ask.user})
		if err != nil || got.Error != ask.refusal ||
			(ask.refusal == "" && (d.rights != nil) != ask.limited) {
			t.Errorf("%+v: %+v, %v, rights %v", ask, got, err, d.rights)
		}
	}
}

func TestCallsOfOneUserAreBounded(t *testing.T) {
	t.Parallel()
	c := perUser{each: maxCalls}
	for i := range maxCalls {
		if !c.enter(7) {
			t.Fatalf("call %d is refused", i)
		}
	}
	if c.enter(7) || !c.enter(8) {
		t.Error("a user has more calls than maxCalls, or takes those of another")
	}
	c.leave(7)
	if !c.enter(7) {
		t.Error("a call that ended still counts")
	}
	var cl claims
	cl.add("b", "user/b")
	for i := range maxClaims + 1 {
		cl.add(fmt.Sprint(i), "user/a")
	}
	if cl.of("0") != "" || cl.of("1") != "user/a" || cl.of("b") != "user/b" ||
		len(cl.owners) != maxClaims+1 {
		t.Errorf("%d claims; the oldest of the user should be forgotten, no other", len(cl.owners))
	}
	for i := range maxClaimants - 1 { // with a; b is pushed out
		cl.add("of "+fmt.Sprint(i), fmt.Sprint("many/", i))
	}
	if cl.of("b") != "" || cl.of("1") != "user/a" || len(cl.ids) != maxClaimants ||
		len(cl.users) != maxClaimants {
		t.Errorf("claims of %d and %d users", len(cl.ids), len(cl.users))
	}
}
