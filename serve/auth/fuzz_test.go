package auth

import (
	"strings"
	"testing"
	"time"
)

// Lines of files that other programs write: no panic, no password of no length, and nobody whom no
// line names.
func FuzzFiles(f *testing.F) {
	f.Add("carol:$apr1$abcdefgh$wlsRDhr1plFpD/w3LeamF0\n", "carol", "word")
	f.Add("carol:$6$rounds=1000$abcdefgh$x\ncarol:realm:x\n", "carol", "word")
	f.Add("carol:$2b$04$1jGwIx3aIt5fWG/LC7I3g.2aBBJxCMKAS65wErEbXIPJT0m5Dsi3m\n# x\n", "carol",
		"word")
	f.Add("carol:{SHA}aPyGhutp2SiverRtEOvSTKtOlhM=\n", "carol", "word")
	f.Add("carol:$5$$\ncarol:$apr1$\ncarol:$2\ncarol:$6$rounds=\n", "carol", "word")
	f.Fuzz(func(t *testing.T, content, user, password string) {
		text := file{kind: "text", hash: "plaintext", separator: ":", password: 1}
		began := time.Now()
		byText, _ := text.text([]byte(content), user, password)
		byHash, _ := htpasswd([]byte(content), user, password)
		byDigest, _ := htdigest([]byte(content), user, "realm", password)
		if (byText || byHash || byDigest) && !strings.Contains(content, user) {
			t.Fatalf("%q is confirmed by %q", user, content)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Fatalf("%q took %v", content, took)
		}
	})
}

func FuzzRestList(f *testing.F) {
	f.Add([]byte(`["test.*", {"web*": [{"state.sls": {"args": ["x"]}}]}, null, 1.5]`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if list, err := restList(body); err != nil && list != nil {
			t.Fatal("a list beside an error")
		}
	})
}
