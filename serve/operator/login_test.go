package operator

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"clustermaster/salt/gather"
	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/value"
)

// external confirms who knows the word, and keeps its tokens here: what makes and keeps them has
// tests of its own.
type external struct {
	mu     sync.Mutex // guards tokens
	tokens map[string]string
}

func (e *external) Open() bool { return true }

func (e *external) identity(name string) auth.Identity {
	lists := map[string][]any{"carol": {"test.*", "@jobs",
		value.Map{{Key: "@key", Value: []any{"list.*"}}}}, "dave": {"cmd.run"},
		"root": {"test.ping"}}
	return auth.Identity{Name: name, Eauth: "file", Rights: acl.FromList(lists[name])}
}

func (e *external) Authenticate(_ context.Context, _ string, c value.Map) (auth.Identity, error) {
	if c.String("eauth") != "file" || c.String("password") != "word" {
		return auth.Identity{}, auth.ErrRefused
	}
	return e.identity(c.String("username")), nil
}

func (e *external) ByToken(_ context.Context, token string) (auth.Identity, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name, ok := e.tokens[token]
	if !ok {
		return auth.Identity{}, auth.ErrRefused
	}
	return e.identity(name), nil
}

func (e *external) MakeToken(ctx context.Context, source string, c value.Map) (value.Map, error) {
	id, err := e.Authenticate(ctx, source, c)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tokens["tok"] = id.Name
	return value.Map{{Key: "token", Value: "tok"}, {Key: "name", Value: id.Name}}, nil
}

func TestUserOfExternalAuth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, root, _ := startWith(t, nil, dir,
		map[string]string{"roots": "root", "earlier": "carol of file", "elsewhere": "carol of pam"})
	e := &external{tokens: map[string]string{}}
	d.server.deps.External = e
	carol, err := Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer carol.Close()

	if user, err := carol.Login(t.Context(),
		Credentials{Eauth: "file", Username: "carol", Password: "wrong"}); user != "" ||
		err != nil {
		t.Fatalf("a wrong password: %q, %v", user, err)
	}
	if token, err := carol.MakeToken(t.Context(),
		Credentials{Eauth: "file", Username: "carol", Password: "wrong"}); token != "" ||
		err != nil {
		t.Fatalf("a token for a wrong password: %q, %v", token, err)
	}
	if _, err := carol.Lists(t.Context(), true); err != nil { // still root, whose process this is
		t.Fatal(err)
	}
	token, err := carol.MakeToken(t.Context(),
		Credentials{Eauth: "file", Username: "carol", Password: "word"})
	if err != nil || token != "tok" {
		t.Fatalf("token %q, %v", token, err)
	}
	if user, err := carol.Login(t.Context(), Credentials{Token: token}); user != "carol" ||
		err != nil {
		t.Fatalf("%q, %v", user, err)
	}

	mine, err := carol.NewJID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// An order carries the name, the rights and the back end, and nothing that the caller says of
	// them.
	_, err = carol.Publish(t.Context(), gather.Publish{Tgt: "*", Fun: "test.ping", User: "root",
		JID: mine, Kwargs: value.Map{
			{Key: "eauth", Value: "auto"}, {Key: "password", Value: "word"},
			{Key: "token", Value: "tok"}, {Key: "metadata", Value: "x"},
		}})
	if err != nil || d.published.User != "carol" || d.rights == nil || len(d.rights.List()) != 3 ||
		len(d.published.Kwargs) != 3 || d.published.Kwargs.String("eauth") != "file" {
		t.Errorf("%v: published %+v with %v", err, d.published, d.rights)
	}
	refused := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	run := func(c *Client, fun string) error {
		_, err := c.Run(t.Context(), RunRequest{Fun: fun}, func(string, any) {})
		return err
	}
	var notAllowed *RefusedError
	if err := run(carol, "manage.up"); !errors.As(err, &notAllowed) ||
		notAllowed.Text != `Authentication failure of type "token" occurred for user carol.` {
		t.Errorf("a runner: %v", err)
	}
	if err := run(carol, "jobs.active"); err != nil || d.run.User != "carol" {
		t.Errorf("a runner of hers: %v as %q", err, d.run.User)
	}
	if err := run(carol, "wheel.key.list_all"); err != nil {
		t.Errorf("a wheel function of hers: %v", err)
	}
	refused("a wheel function", run(carol, "wheel.key.accept"), "Authentication failure")
	d.server.claims.add("claimed", "user/12345")
	for jid, want := range map[string]string{"roots": "not yours", "elsewhere": "not yours",
		"chosen": "not yours", "claimed": "another user's job", mine: "", "earlier": ""} {
		d.run = RunRequest{}
		_, err := carol.Run(t.Context(), RunRequest{Fun: "jobs.active", JID: jid},
			func(string, any) {})
		if want == "" && (err != nil || d.run.JID != jid) {
			t.Errorf("a runner with the id %s: %v", jid, err)
		} else if want != "" {
			refused("a runner with the id "+jid, err, want)
			if d.run.Fun != "" {
				t.Errorf("a runner with the id %s ran", jid)
			}
		}
	}
	_, err = carol.Targets(t.Context(), "*", "glob", ":")
	if err != nil {
		t.Errorf("a target that she may ping: %v", err)
	}
	_, err = carol.Lists(t.Context(), true)
	refused("keys", err, "only root")
	_, err = carol.Change(t.Context(), KeyChange{Action: "accept"})
	refused("change of keys", err, "only root")
	_, err = carol.Docs(t.Context(), "")
	refused("docs", err, "only root")
	read := func(c *Client, jid string) error {
		return c.ReadReturns(t.Context(), jid, []string{"a"},
			func(string, gather.Return) error { return nil })
	}
	_, err = carol.Subscribe(t.Context(), "salt/")
	refused("all events", err, "not yours")
	refused("a job of root", read(carol, "roots"), "not yours")
	if err := read(carol, mine); err != nil {
		t.Errorf("her own job: %v", err)
	}

	if err := read(carol, "earlier"); err != nil {
		t.Errorf("her job of another day, by any master: %v", err)
	}
	refused("a job of carol of another back end", read(carol, "elsewhere"), "not yours")

	// Another connection is somebody else, and a name is no name of the system.
	if err := run(root, "manage.up"); err != nil {
		t.Errorf("root: %v", err)
	}
	named, err := Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	if user, err := named.Login(t.Context(),
		Credentials{Eauth: "file", Username: "root", Password: "word"}); user != "root" ||
		err != nil {
		t.Fatalf("%q, %v", user, err)
	}
	refused("a job of the system's root", read(named, "roots"), "not yours")
	refused("the job of carol", read(named, mine), "not yours")
	refused("a runner", run(named, "jobs.active"), `type "eauth" occurred for user root.`)
	if _, err := named.Publish(t.Context(),
		gather.Publish{Tgt: "*", Fun: "test.ping", JID: mine}); err == nil {
		t.Error("published with the id of carol's job")
	}
	if _, err := named.Login(t.Context(),
		Credentials{Eauth: "file", Username: "dave", Password: "word"}); err != nil {
		t.Fatal(err)
	}
	_, err = named.Targets(t.Context(), "*", "glob", ":")
	refused("a target that he may not ping", err, acl.NotAuthorized)

	// A token that is deleted is good for nothing at once.
	e.mu.Lock()
	clear(e.tokens)
	e.mu.Unlock()
	_, err = carol.Publish(t.Context(), gather.Publish{Tgt: "*", Fun: "test.ping"})
	refused("after the token is gone", err, `Authentication failure of type "token" occurred.`)
	refused("after the token is gone", run(carol, "jobs.active"),
		`Authentication failure of type "token" occurred.`)
}
