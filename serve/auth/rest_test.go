package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/serve/auth"
)

// service is an HTTP server that knows users, and counts what it is asked.
func service(t *testing.T, asked *atomic.Int32) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		user, word := r.PostFormValue("username"), r.PostFormValue("password")
		if r.Method != http.MethodPost || len(r.URL.RawQuery) > 0 || word != "p&ss=wörd" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch user {
		case "lists":
			fmt.Fprint(w, `["test.ping", {"web*": ["cmd.run"]}, "@runner"]`)
		case "nothing", "frank":
			fmt.Fprint(w, "null")
		case "empty":
			fmt.Fprint(w, "[]")
		case "map":
			fmt.Fprint(w, `{"x": 1}`)
		case "broken":
			fmt.Fprint(w, `["x"`)
		case "text":
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprint(w, "fine")
		case "large":
			fmt.Fprint(w, `["`+strings.Repeat("x", 2<<20)+`"]`)
		case "deep":
			fmt.Fprint(w, strings.Repeat("[", 100)+strings.Repeat("]", 100))
		case "elsewhere":
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		case "slow":
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
				fmt.Fprint(w, "null")
			}
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestRest(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := service(t, &asked)
	o := auth.Options{
		External: dict("rest", dict("^url", s.URL+"/login", "frank", list("test.version"),
			"lists", list("@wheel"), "*", list("test.version"))),
	}
	a, _, said := opened(t, o, auth.Deps{})
	o.RestTimeout = time.Second
	hasty, _, _ := opened(t, o, auth.Deps{})
	for _, c := range []struct{ user, word, may string }{
		// both lists count
		{"lists", "p&ss=wörd", "test.ping cmd.run saltutil.find_job runner wheel"},
		{"frank", "p&ss=wörd", "test.version saltutil.find_job"},
		{"nothing", "p&ss=wörd", "test.version saltutil.find_job"}, // the entry for all others
		{"empty", "p&ss=wörd", "test.version saltutil.find_job"},
		{"lists", "wrong", ""}, {"map", "p&ss=wörd", ""}, {"broken", "p&ss=wörd", ""},
		{"text", "p&ss=wörd", ""}, {"large", "p&ss=wörd", ""}, {"deep", "p&ss=wörd", ""},
		{"elsewhere", "p&ss=wörd", ""}, {"slow", "p&ss=wörd", ""}, {"nobody", "p&ss=wörd", ""},
	} {
		before, by := asked.Load(), a
		if c.user == "slow" {
			by = hasty
		}
		id, err := by.Authenticate(t.Context(), "10.0.0.1", creds("rest", c.user, c.word))
		if n := asked.Load() - before; n != 1 {
			t.Errorf("%s: asked %d times", c.user, n)
		}
		if c.may == "" {
			if !errors.Is(err, auth.ErrRefused) {
				t.Errorf("%s: %+v, %v", c.user, id, err)
			}
			continue
		}
		if err != nil || allowed(t, id) != c.may {
			t.Errorf("%s: %v; want %s", c.user, err, c.may)
		}
	}
	// The list comes with the password only, so that a token keeps it.
	made, err := a.MakeToken(t.Context(), "10.0.0.1", creds("rest", "lists", "p&ss=wörd"))
	if err != nil {
		t.Fatal(err)
	}
	before := asked.Load()
	id, err := a.ByToken(t.Context(), made.String("token"))
	if err != nil || allowed(t, id) != "test.ping cmd.run saltutil.find_job runner wheel" ||
		asked.Load() != before {
		t.Errorf("by token: %v, asked %d times", err, asked.Load()-before)
	}
	if strings.Contains(said.String(), "wörd") || strings.Contains(said.String(), s.URL) {
		t.Errorf("the log tells too much:\n%s", said)
	}
}

// With eauth_acl_module the service says what users of another back end may order, or external_auth
// does where it says nothing.
func TestListsOfAnotherBackEnd(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := service(t, &asked)
	a, _, _ := opened(t, auth.Options{
		ACLModule: "rest", SharedSecret: "p&ss=wörd",
		External: dict("rest", dict("^url", s.URL), "sharedsecret",
			dict("*", list("test.version"))),
	}, auth.Deps{})
	for user, may := range map[string]string{"lists": "test.ping cmd.run saltutil.find_job runner",
		"nothing": "test.version saltutil.find_job", "nobody": "test.version saltutil.find_job"} {
		id, err := a.Authenticate(t.Context(), "10.0.0.1", creds("sharedsecret", user, "p&ss=wörd"))
		if err != nil || allowed(t, id) != may {
			t.Errorf("%s: %v, want %s", user, err, may)
		}
	}
}

func TestServiceIsAway(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	a, _, said := opened(t, auth.Options{External: dict("rest",
		dict("^url", s.URL, "x", list(".*")))}, auth.Deps{})
	if _, err := a.Authenticate(context.Background(), "10.0.0.1",
		creds("rest", "x", "secret-word")); !errors.Is(err, auth.ErrRefused) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(said.String(), "ask the back end") ||
		strings.Contains(said.String(), "secret-word") {
		t.Errorf("the log does not tell why, or too much:\n%s", said)
	}
}
