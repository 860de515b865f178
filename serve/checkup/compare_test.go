package checkup

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/config"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	same := map[string]string{"timeout": "a"}
	got := fmt.Sprint(Compare([]Report{
		{Master: "m1", Release: "0.2.0", Options: same,
			Roots: map[string]map[string]string{"file_roots base": {"web": "1", "db": "1"}}},
		{Master: "m2", Release: "0.2.0", Options: map[string]string{"timeout": "b"},
			Roots: map[string]map[string]string{"file_roots base": {"web": "2", "db": "1"}}},
		{Master: "m3", Release: "0.1.0", Options: same,
			Roots: map[string]map[string]string{"file_roots base": {"web": "1"}}},
	}))
	for _, want := range []string{
		"the option timeout differs between m1, m3 and m2",
		"file_roots base: web differs between m1, m3 and m2",
		"file_roots base: db is missing on m3",
		"masters run 0.1.0 and 0.2.0",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "hold the same") {
		t.Error(got)
	}
	if Compare([]Report{{Master: "m1"}}) != nil {
		t.Error("one master is compared with itself")
	}
}

// Digests tell neither values nor secrets, and are the same for the same value and nonce alone.
func TestDigests(t *testing.T) {
	t.Parallel()
	o := &config.Options{Extra: map[string]any{"timeout": 7,
		"cluster_secret": config.Secret("hidden"), "id": "m1"}}
	a, b, c := Digests(o, "n1"), Digests(o, "n1"), Digests(o, "n2")
	if len(a) != 1 || a["timeout"] == "" || a["timeout"] != b["timeout"] ||
		a["timeout"] == c["timeout"] {
		t.Errorf("%v %v %v", a, b, c)
	}
}

// TestLinkedRoots: a link to a folder has the digests of the folder, not of its name.
func TestLinkedRoots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(real, "top.sls"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	of := func(dir string) map[string]string {
		return Roots(t.Context(), &config.Options{
			FileRoots: config.Roots{{Name: "base", Dirs: []string{dir}}}})["file_roots base"]
	}
	write("a")
	before := of(link)
	if len(before) != 1 || before["top.sls"] == "" || !maps.Equal(before, of(real)) {
		t.Errorf("%v below the link, %v below the folder", before, of(real))
	}
	write("b")
	if maps.Equal(before, of(link)) {
		t.Error("a changed file has the digest of before")
	}
}

// TestReadyAsABalancerAsks: the first answer of the health port counts, wherever it points.
func TestReadyAsABalancerAsks(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]Level{200: Good, 302: Error, 503: Error} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(code)
			}
		}))
		c := &checker{o: &config.Options{HealthListen: srv.Listener.Addr().String()}}
		c.ready(t.Context())
		srv.Close()
		if len(c.found) != 1 || c.found[0].Level != want {
			t.Errorf("%d: %v", code, c.found)
		}
	}
}

func TestCertificateThatEnds(t *testing.T) {
	t.Parallel()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for days, want := range map[int]string{-1: "ended on", 10: "ends on", 90: ""} {
		tmpl := &x509.Certificate{SerialNumber: big.NewInt(1),
			NotBefore: time.Now().Add(-99 * 24 * time.Hour), NotAfter: time.Now().AddDate(0,
				0, days)}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, pub, key)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "api.crt")
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		c := new(checker)
		if bad := c.certificate("rest_cherrypy", path); bad != (want != "") ||
			!strings.Contains(fmt.Sprint(c.found), want) {
			t.Errorf("%d days: %v", days, c.found)
		}
	}
}

// TestMissingRoots: a folder that a file names must be there, one of the defaults need not.
func TestMissingRoots(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "gone")
	for text, want := range map[string]Level{
		"": Good, "file_roots: {base: [" + gone + "]}": Warning, "file_roots: {base: [/]}": Good,
		"pillar_roots: {base: [" + gone + "]}": Warning,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		o, _, err := config.Load(dir, func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		c := &checker{o: o}
		c.roots(t.Context(), false)
		if len(c.found) != 1 || c.found[0].Level != want {
			t.Errorf("%q: %v", text, c.found)
		}
	}
}
