package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"clustermaster/config"
	"clustermaster/config/settings"
	"clustermaster/serve/acl"
	"clustermaster/serve/auth"
	"clustermaster/serve/health"
)

// TestReload: nothing is in force before everything is checked, and the caller uses it.
func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pem := filepath.Join(dir, "door.pem")
	load := func(users, list string) *config.Options {
		text := strings.NewReplacer("PEM", pem, "USERS", users, "LIST", list).Replace(
			"metrics_tls_cert: PEM\nmetrics_tls_key: PEM\npublisher_acl: {LIST: ['test.*']}\n" +
				"external_auth: {file: {USERS}}\n")
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, _, err := config.Load(dir, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	good := "^filename: " + filepath.Join(dir, "users") + ", carol: ['test.*']"
	if err := os.WriteFile(filepath.Join(dir, "users"), []byte("carol:word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	former, next := time.Now().Add(time.Hour).Truncate(time.Second).UTC(),
		time.Now().Add(9*time.Hour).Truncate(time.Second).UTC()
	selfSigned(t, pem, former)
	r := &process{opts: load(good, "bob")}
	var err error
	if r.door, err = health.NewDoor(settings.Door(r.opts)); err != nil {
		t.Fatal(err)
	}
	if r.rules, err = acl.New(settings.ACL(r.opts)); err != nil {
		t.Fatal(err)
	}
	if r.auth, err = auth.New(settings.Auth(r.opts), auth.Deps{
		Registry: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	selfSigned(t, pem, next)
	isFormer := func(when string) {
		t.Helper()
		if ends := r.door.NotAfter(); !ends.Equal(former) {
			t.Errorf("%s: the certificate ends %v, that of before %v", when, ends, former)
		}
		if r.rules.Of("bob") == nil || r.rules.Of("eve") != nil {
			t.Errorf("%s: other rules are in force", when)
		}
	}
	reload := func(o *config.Options) ([]string, []func(), error) {
		return r.reload(o, config.Changed(r.opts, o))
	}
	if _, _, err := reload(load("carol: ['test.*']", "eve")); err == nil { // no ^filename
		t.Error("external_auth was not checked")
	}
	isFormer("after an error")
	names, use, err := reload(load(good, "eve"))
	if err != nil || !slices.Equal(names, []string{"publisher_acl"}) {
		t.Fatalf("%v %v", names, err)
	}
	isFormer("before use")
	for _, put := range use {
		put()
	}
	if ends := r.door.NotAfter(); !ends.Equal(next) || r.rules.Of("eve") == nil {
		t.Errorf("after use: the certificate ends %v, want %v, or eve has no rights", ends, next)
	}
}
