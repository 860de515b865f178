package auth_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/serve/auth"
	"clustermaster/value"
)

// TestAdoptTokens takes in the files of Salt 3006 and 3008; their tokens let users in as before.
func TestAdoptTokens(t *testing.T) {
	t.Parallel()
	a, tokens, said := opened(t, shared(), auth.Deps{})
	dir := t.TempDir()
	later, past := float64(time.Now().Unix())+3600.25, float64(time.Now().Unix())-1
	name := func(c string) string { return strings.Repeat(c, 64) }
	token := func(text string, expire any) value.Map {
		return dict("start", 1.5, "expire", expire, "name", "carol", "eauth", "sharedsecret", "token",
			text)
	}
	for file, v := range map[string]any{
		name("a"):        token(name("a"), later),
		name("b") + ".p": dict("data", token(name("b"), later), "_expires", int64(later)),
		name("c"):        token(name("c"), past),
		name("d"):        token(name("d"), "soon"),
		name("e"):        "no map",
		name("f"):        dict("start", 1.0, "expire", later),
		"abcd":           token("abcd", later),
		"README":         "text",
	} {
		b, err := value.PackNew(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, name("0"))); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a token that is known stays
		adopted, expired, failed, err := a.AdoptTokens(t.Context(), dir)
		if err != nil || adopted != 2 || expired != 1 || failed != 3 {
			t.Fatalf("%d adopted, %d expired, %d failed, %v\n%s", adopted, expired, failed, err, said)
		}
	}
	if n := tokens.Tokens(); n != 2 {
		t.Errorf("%d tokens", n)
	}
	for _, c := range []string{"a", "b"} {
		id, err := a.ByToken(t.Context(), name(c))
		if err != nil || id.Name != "carol" ||
			allowed(t, id) != "test.ping test.version saltutil.find_job runner" {
			t.Errorf("%s: %+v, %v", c, id, err)
		}
	}
	for _, c := range []string{"c", "d", "e", "f"} {
		if _, err := a.ByToken(t.Context(), name(c)); !errors.Is(err, auth.ErrRefused) {
			t.Errorf("%s: %v", c, err)
		}
	}
	if strings.Contains(said.String(), name("d")) || strings.Contains(said.String(), name("a")) {
		t.Error("the log has a token")
	}
	if _, _, _, err := a.AdoptTokens(t.Context(), filepath.Join(dir, "nosuch")); err != nil {
		t.Errorf("no folder: %v", err)
	}
}
