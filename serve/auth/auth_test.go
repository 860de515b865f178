package auth_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/value"
)

func shared() auth.Options {
	return auth.Options{
		SharedSecret: "open sesame",
		External: dict("sharedsecret", dict(
			"carol", list("test.*", "@runner"), "d.*", list("cmd.run"), "admins%", list("@wheel"),
			"*", list("test.version"),
		), "auto", dict("eve", list(".*"))),
	}
}

// allowed is what of some functions an identity may order on one minion.
func allowed(t *testing.T, id auth.Identity) string {
	t.Helper()
	var out []string
	for _, fun := range []string{"test.ping", "test.version", "cmd.run", "saltutil.find_job"} {
		where, err := id.Rights.Allow(t.Context(),
			acl.Order{Funs: []string{fun}, Minions: []string{"web1"}}, func(_ context.Context,
				compound string) ([]string, error) {
				if strings.HasPrefix(compound, "web") || compound == "L@web1,web2" {
					return []string{"web1", "web2"}, nil
				}
				return nil, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if where != acl.Nowhere {
			out = append(out, fun)
		}
	}
	if ok, _ := id.Rights.AllowRunner("jobs.active", nil, nil); ok {
		out = append(out, "runner")
	}
	if ok, _ := id.Rights.AllowWheel("key.list_all", nil, nil); ok {
		out = append(out, "wheel")
	}
	return strings.Join(out, " ")
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _, said := opened(t, shared(), auth.Deps{})
		for _, c := range []struct {
			name  string
			creds value.Map
			may   string // "": refused
		}{
			{"by name", creds("sharedsecret", "carol", "open sesame"),
				"test.ping test.version saltutil.find_job runner"},
			{"by pattern", creds("sharedsecret", "dave", "open sesame"),
				"cmd.run saltutil.find_job"},
			{"by nothing but *", creds("sharedsecret", "zed", "open sesame"),
				"test.version saltutil.find_job"},
			{"another back end", creds("auto", "eve", "x"),
				"test.ping test.version cmd.run saltutil.find_job"},
			{"no entry and no *", creds("auto", "carol", "x"), "saltutil.find_job"},
			{"wrong password", creds("sharedsecret", "carol", "sesame"), ""},
			{"no password", dict("eauth", "sharedsecret", "username", "carol"), ""},
			{"null for a password", dict("eauth", "sharedsecret", "username", "carol", "password",
				nil), ""},
			{"a number for a password", dict("eauth", "auto", "username", "eve", "password",
				int64(1)), ""},
			{"a list for a name", dict("eauth", "auto", "username", list("eve"), "password",
				"x"), ""},
			{"no name", creds("auto", "", "x"), ""},
			{"a line end in the name", creds("auto", "eve\nx", "x"), ""},
			{"a long name", creds("auto", strings.Repeat("e", 257), "x"), ""},
			{"a long password", creds("auto", "eve", strings.Repeat("e", 4097)), ""},
			{"back end not enabled", creds("pam", "carol", "open sesame"), ""},
			{"no back end", dict("username", "carol", "password", "open sesame"), ""},
			{"nothing", nil, ""},
		} {
			began := time.Now()
			id, err := a.Authenticate(t.Context(), "10.0.0.1", c.creds)
			took := time.Since(began)
			if c.may == "" {
				if !errors.Is(err, auth.ErrRefused) || id.Rights != nil ||
					took < 700*time.Millisecond || took > 1300*time.Millisecond {
					t.Errorf("%s: %+v, %v after %v; want a refusal after about a second", c.name,
						id, err, took)
				}
				continue
			}
			if err != nil || took > 100*time.Millisecond {
				t.Errorf("%s: %v after %v", c.name, err, took)
				continue
			}
			if got := allowed(t, id); got != c.may {
				t.Errorf("%s may %s, want %s", c.name, got, c.may)
			}
		}
		if strings.Contains(said.String(), "sesame") {
			t.Errorf("a password is in the log:\n%s", said)
		}
	})
}

// A refusal keeps nobody else waiting; too many at a time with one name from one source are refused
// at once, and the others one by one.
func TestGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _, said := opened(t, shared(), auth.Deps{})
		began := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		var after []time.Duration
		for range 20 {
			wg.Go(func() {
				_, err := a.Authenticate(t.Context(), "10.0.0.1",
					creds("sharedsecret", "mallory", "guess"))
				mu.Lock()
				defer mu.Unlock()
				if after = append(after, time.Since(began)); !errors.Is(err, auth.ErrRefused) {
					t.Errorf("a guess: %v", err)
				}
			})
		}
		synctest.Wait()
		if _, err := a.Authenticate(t.Context(), "10.0.0.1",
			creds("sharedsecret", "carol", "open sesame")); err != nil || time.Since(began) > 0 {
			t.Errorf("beside guesses: %v after %v", err, time.Since(began))
		}
		wg.Wait()
		slices.Sort(after)
		if want := append(make([]time.Duration, 12), 1e9, 2e9, 3e9, 4e9, 5.5e9, 5.5e9, 5.5e9,
			6e9); !slices.Equal(after, want) {
			t.Errorf("20 guesses with one name were refused after\n%v, want\n%v", after, want)
		}
		if n := strings.Count(said.String(), "refused"); n > 4 ||
			!strings.Contains(said.String(), "addr=10.0.0.1") {
			t.Errorf("%d lines of log:\n%s", n, said)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := a.Authenticate(ctx, "10.0.0.1",
			creds("sharedsecret", "mallory", "guess")); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that went away: %v", err)
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, tokens, said := opened(t, shared(), auth.Deps{})
		made, err := a.MakeToken(t.Context(), "10.0.0.1",
			creds("sharedsecret", "carol", "open sesame"))
		if err != nil {
			t.Fatal(err)
		}
		text := made.String("token")
		start, _ := made.Get("start")
		expire, _ := made.Get("expire")
		if len(text) != 64 || made.String("name") != "carol" ||
			made.String("eauth") != "sharedsecret" || expire.(float64)-start.(float64) != 12*3600 {
			t.Errorf("made %v", made)
		}
		got, ok := a.Token(t.Context(), text)
		if !ok || got.String("name") != "carol" || got.String("token") != text {
			t.Errorf("found %v, %v", got, ok)
		}
		id, err := a.ByToken(t.Context(), text)
		if err != nil || id.Name != "carol" ||
			allowed(t, id) != "test.ping test.version saltutil.find_job runner" {
			t.Errorf("by token: %+v, %v", id, err)
		}
		saved, _ := tokens.s.Saved()
		for _, s := range saved.Tokens {
			if strings.Contains(string(s.Data), text) || strings.Contains(string(s.Hash[:]), text) {
				t.Error("the state has the token's text")
			}
		}
		for _, bad := range []string{"", "x", strings.Repeat("0", 64), text + "0", text[:63],
			strings.Repeat("x", 10_000)} {
			if _, err := a.ByToken(t.Context(), bad); !errors.Is(err, auth.ErrRefused) {
				t.Errorf("token %.70q: %v", bad, err)
			}
		}
		if n := strings.Count(said.String(), "eauth=token"); n != 1 {
			t.Errorf("%d lines about refused tokens:\n%s", n, said)
		}
		if _, err := a.MakeToken(t.Context(), "10.0.0.1",
			creds("sharedsecret", "carol", "wrong")); !errors.Is(err, auth.ErrRefused) {
			t.Errorf("wrong password: %v", err)
		}
		if had, err := a.DeleteToken(t.Context(), text); !had || err != nil {
			t.Errorf("delete: %v, %v", had, err)
		}
		if _, ok := a.Token(t.Context(), text); ok {
			t.Error("a deleted token is found")
		}
		if had, err := a.DeleteToken(t.Context(), text); had || err != nil {
			t.Errorf("delete again: %v, %v", had, err)
		}
		made, err = a.MakeToken(t.Context(), "10.0.0.1",
			creds("sharedsecret", "carol", "open sesame"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(12*time.Hour + time.Second)
		if _, ok := a.Token(t.Context(), made.String("token")); ok {
			t.Error("an expired token is found")
		}
		for _, secret := range []string{"sesame", text, made.String("token")} {
			if strings.Contains(said.String(), secret) {
				t.Errorf("the log has %s", secret)
			}
		}
	})
}

func TestTokenExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			override, asked any
			want            float64 // seconds; 0: refused
		}{
			{false, int64(60), 3600}, {nil, int64(60), 3600}, {true, int64(60), 60},
			{true, 60.5, 60.5}, {true, uint64(60), 60},
			{dict("auto", list("eve", "x")), int64(60), 60},
			{dict("auto", list("x")), int64(60), 3600}, {dict("pam", list("eve")), int64(60), 3600},
			{true, int64(0), 0}, {true, int64(-1), 0}, {true, "60", 0}, {true, int64(1 << 40), 0},
			{false, "60", 3600},
		} {
			o := shared()
			o.TokenExpire, o.ExpireOverride = time.Hour, c.override
			a, _, _ := opened(t, o, auth.Deps{})
			made, err := a.MakeToken(t.Context(), "10.0.0.1",
				append(creds("auto", "eve", "x"), value.Pair{Key: "token_expire", Value: c.asked}))
			if c.want == 0 {
				if !errors.Is(err, auth.ErrRefused) {
					t.Errorf("%v asks for %v: %v", c.override, c.asked, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%v asks for %v: %v", c.override, c.asked, err)
				continue
			}
			start, _ := made.Get("start")
			expire, _ := made.Get("expire")
			if got := expire.(float64) - start.(float64); got < c.want-0.001 || got > c.want+0.001 {
				t.Errorf("%v asks for %v and gets %v s, want %v", c.override, c.asked, got, c.want)
			}
		}
	})
}

// What a token would keep is bounded.
func TestLargeToken(t *testing.T) {
	t.Parallel()
	var rights []any
	for range 2000 {
		rights = append(rights, "network.*")
	}
	a, tokens, _ := opened(t, auth.Options{KeepACLInToken: true,
		External: dict("auto", dict("eve", rights))}, auth.Deps{})
	if made, err := a.MakeToken(t.Context(), "10.0.0.1", creds("auto", "eve", "x")); err == nil ||
		made != nil || tokens.Tokens() != 0 {
		t.Errorf("%d tokens, %v", tokens.Tokens(), err)
	}
}

// One user can't take the place of all tokens; what he deletes, or what expires, makes room.
func TestTokensOfOneUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, tokens, _ := opened(t, auth.Options{External: dict("auto", dict("*", list(".*")))},
			auth.Deps{})
		var last string
		for i := range 2000 {
			made, err := a.MakeToken(t.Context(), "10.0.0.1", creds("auto", "eve", "x"))
			if err != nil {
				t.Fatalf("token %d: %v", i, err)
			}
			last = made.String("token")
		}
		if _, err := a.MakeToken(t.Context(), "10.0.0.1",
			creds("auto", "eve", "x")); !errors.Is(err, auth.ErrTokensFull) ||
			tokens.Tokens() != 2000 {
			t.Errorf("one more: %v, %d tokens", err, tokens.Tokens())
		}
		if _, err := a.MakeToken(t.Context(), "10.0.0.1", creds("auto", "carol", "x")); err != nil {
			t.Errorf("another user: %v", err)
		}
		if had, err := a.DeleteToken(t.Context(), last); !had || err != nil {
			t.Errorf("%v, %v", had, err)
		}
		if _, err := a.MakeToken(t.Context(), "10.0.0.1", creds("auto", "eve", "x")); err != nil {
			t.Errorf("after a deletion: %v", err)
		}
		time.Sleep(13 * time.Hour)
		if _, err := a.MakeToken(t.Context(), "10.0.0.1", creds("auto", "eve", "x")); err != nil ||
			tokens.Tokens() != 1 {
			t.Errorf("after their time: %v, %d tokens", err, tokens.Tokens())
		}
	})
}

// With keep_acl_in_token the list of the moment stays in the token; without it what external_auth
// says counts.
func TestKeptList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, keep := range []bool{false, true} {
			o := shared()
			o.KeepACLInToken = keep
			a, tokens, _ := opened(t, o, auth.Deps{})
			made, err := a.MakeToken(t.Context(), "10.0.0.1",
				creds("sharedsecret", "dave", "open sesame"))
			if err != nil {
				t.Fatal(err)
			}
			o.External = dict("sharedsecret", dict("dave", list("test.ping")))
			other, err := auth.New(o, auth.Deps{Tokens: tokens})
			if err != nil {
				t.Fatal(err)
			}
			id, err := other.ByToken(t.Context(), made.String("token"))
			want := map[bool]string{false: "test.ping saltutil.find_job",
				true: "cmd.run saltutil.find_job"}[keep]
			if err != nil || allowed(t, id) != want {
				t.Errorf("keep %v: may %s, %v; want %s", keep, allowed(t, id), err, want)
			}
			o.External = dict("auto", nil)
			if other, err = auth.New(o, auth.Deps{Tokens: tokens}); err != nil {
				t.Fatal(err)
			}
			if _, err := other.ByToken(t.Context(), made.String("token")); !errors.Is(err,
				auth.ErrRefused) {
				t.Errorf("keep %v: a token of a removed back end: %v", keep, err)
			}
		}
	})
}

// Other options count for the next password and for tokens that there are; options with an error
// change nothing.
func TestPrepare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := opened(t, shared(), auth.Deps{})
		carol := creds("sharedsecret", "carol", "open sesame")
		token, err := a.MakeToken(t.Context(), "here", carol)
		if err != nil {
			t.Fatal(err)
		}
		bad := shared()
		bad.SharedSecret = ""
		if _, err := a.Prepare(bad); err == nil {
			t.Error("an empty sharedsecret is taken")
		}
		next := shared()
		next.SharedSecret = "open wider"
		next.External = dict("sharedsecret", dict("carol", list("test.version")))
		use, err := a.Prepare(next)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := a.Authenticate(t.Context(), "here", carol); err != nil ||
			allowed(t, id) != "test.ping test.version saltutil.find_job runner" {
			t.Errorf("prepared options count before they are used: %v", err)
		}
		use()
		if _, err := a.Authenticate(t.Context(), "here", carol); !errors.Is(err, auth.ErrRefused) {
			t.Errorf("the former sharedsecret: %v", err)
		}
		if _, err := a.Authenticate(t.Context(), "here",
			creds("auto", "eve", "x")); !errors.Is(err, auth.ErrRefused) {
			t.Errorf("a back end that is gone: %v", err)
		}
		for name, get := range map[string]func() (auth.Identity, error){
			"password": func() (auth.Identity, error) {
				return a.Authenticate(t.Context(), "here",
					creds("sharedsecret", "carol", "open wider"))
			},
			"token": func() (auth.Identity, error) {
				return a.ByToken(t.Context(), token.String("token"))
			},
		} {
			if id, err := get(); err != nil || allowed(t, id) != "test.version saltutil.find_job" {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    auth.Options
		want string
	}{
		"strange": {auth.Options{External: dict("django", dict("x", list(".*")))},
			"use one of auto, file, ldap, pam, rest, sharedsecret"},
		"no list": {auth.Options{External: dict("auto", dict("x", ".*"))}, "is not a list"},
		"number": {auth.Options{External: dict("auto", dict(int64(7), list(".*")))},
			"is not text"},
		"no map": {auth.Options{External: dict("auto", list("x"))}, "is not a map"},
		"no secret": {auth.Options{External: dict("sharedsecret", nil)},
			"sharedsecret is empty"},
		"no file": {auth.Options{External: dict("file", nil)}, "^filename is missing"},
		"file type": {auth.Options{External: dict("file",
			dict("^filename", "/x", "^filetype", "csv"))}, "use text, htpasswd or htdigest"},
		"hash type": {auth.Options{External: dict("file",
			dict("^filename", "/x", "^hashtype", "sha1"))}, "use plaintext, md5, sha256 or sha512"},
		"field": {auth.Options{External: dict("file",
			dict("^filename", "/x", "^username_field", int64(0)))}, "count from 1"},
		"realm": {auth.Options{External: dict("file",
			dict("^filename", "/x", "^filetype", "htdigest"))}, "needs ^realm"},
		"no url": {auth.Options{External: dict("rest", nil)}, "^url is missing"},
		"file as url": {auth.Options{External: dict("rest", dict("^url", "file:///etc/passwd"))},
			"does not begin"},
		"acl module": {auth.Options{ACLModule: "mysql"}, "eauth_acl_module"},
		"no python":  {auth.Options{External: dict("pam", nil)}, "auth.pam.python"},
		"pam service": {auth.Options{External: dict("pam", nil),
			BackEnds: dict("auth.pam.service", "../x")}, "/etc/pam.d"},
		"no directory": {auth.Options{External: dict("ldap", nil)}, "auth.ldap.binddn is missing"},
		"anonymous": {auth.Options{External: dict("ldap", nil),
			BackEnds: dict("auth.ldap.anonymous", true)}, "auth.ldap.binddn is missing"},
		"no password": {auth.Options{External: dict("ldap", nil),
			BackEnds: dict("auth.ldap.binddn", "uid={{ username }}", "auth.ldap.anonymous", true,
				"auth.ldap.auth_by_group_membership_only", true)}, "ask for no password"},
		"nobody": {auth.Options{External: dict("ldap", nil),
			BackEnds: dict("auth.ldap.binddn", "cn=search", "auth.ldap.bindpw", "x",
				"auth.ldap.filter", "uid=x",
				"auth.ldap.anonymous", true)}, "lets nobody in"},
		"template": {auth.Options{External: dict("ldap", nil),
			BackEnds: dict("auth.ldap.binddn", "uid={{ username|lower }}")},
			"only {{ username }}"},
	} {
		if _, err := auth.New(c.o, auth.Deps{}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestRun makes a token for salt-run, where refused credentials are no error.
func TestRun(t *testing.T) {
	t.Parallel()
	a, tokens, _ := opened(t, shared(), auth.Deps{})
	run := auth.Run{Auth: a}
	made, ok, err := run.MakeToken(t.Context(), creds("sharedsecret", "carol", "wrong"))
	if made != nil || ok || err != nil || tokens.Tokens() != 0 {
		t.Errorf("wrong password: %v, %v, %v, %d tokens", made, ok, err, tokens.Tokens())
	}
	made, ok, err = run.MakeToken(t.Context(), creds("sharedsecret", "carol", "open sesame"))
	if made.String("token") == "" || !ok || err != nil || tokens.Tokens() != 1 {
		t.Errorf("right password: %v, %v, %v, %d tokens", made, ok, err, tokens.Tokens())
	}
}
