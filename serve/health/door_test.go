package health

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/crypto/bcrypt"
)

// signed makes a certificate for 127.0.0.1 and its key, by ca or by itself, and writes both below
// dir.
func signed(t *testing.T, dir, name string, ca *tls.Certificate) (pair tls.Certificate, cert,
	key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: ca == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, by := template, any(private)
	if ca != nil {
		parent, by = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &private.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	write(t, cert, string(certPEM))
	write(t, key, string(keyPEM))
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return pair, cert, key
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serveMetrics answers behind a door, and returns the address.
func serveMetrics(t *testing.T, d *Door) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector())
	done := make(chan error, 1)
	go func() {
		done <- Metrics(t.Context(), ln, reg, d, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// fetch asks for the metrics: the status, or what kept the connection from being made.
func fetch(t *testing.T, url string, c *tls.Config, user, password string) (status int, err error) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		q.SetBasicAuth(user, password)
	}
	r, err := client.Do(q)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if has := strings.Contains(string(body), "go_goroutines"); has != (r.StatusCode == 200) {
		t.Errorf("status %d, with metrics: %v", r.StatusCode, has)
	}
	return r.StatusCode, err
}

func TestDoor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, caFile, _ := signed(t, dir, "ca", nil)
	_, cert, key := signed(t, dir, "server", &ca)
	client, _, _ := signed(t, dir, "client", &ca)
	stranger, strangerFile, _ := signed(t, dir, "stranger", nil)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	with := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: roots, Certificates: certs}
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("pass:word"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(dir, "users")
	write(t, users, "# readers\nprometheus:"+string(hash)+"\n")

	t.Run("passwords", func(t *testing.T) {
		d, err := NewDoor(DoorFiles{Cert: cert, Key: key, Users: users})
		if err != nil {
			t.Fatal(err)
		}
		url := "https://" + serveMetrics(t, d) + "/metrics"
		for _, try := range []struct {
			user, password string
			want           int
		}{{"", "", 401}, {"prometheus", "wrong", 401}, {"nobody", "nobody", 401},
			{"other", "pass:word", 401}, {"prometheus", "pass:word", 200},
			{"prometheus", "pass:word", 200}, {"prometheus", "wrong", 401}} {
			if got, err := fetch(t, url, with(), try.user, try.password); got != try.want {
				t.Errorf("%s with %q: %d %v, want %d", try.user, try.password, got, err, try.want)
			}
		}
		if got, err := fetch(t, strings.Replace(url, "https", "http", 1), nil, "prometheus",
			"pass:word"); err == nil && got == 200 {
			t.Error("answered without TLS")
		}
	})
	t.Run("certificates", func(t *testing.T) {
		d, err := NewDoor(DoorFiles{Cert: cert, Key: key, ClientCA: caFile})
		if err != nil {
			t.Fatal(err)
		}
		url := "https://" + serveMetrics(t, d) + "/metrics"
		if got, err := fetch(t, url, with(client), "", ""); got != 200 {
			t.Errorf("with a certificate: %d, %v", got, err)
		}
		for name, c := range map[string]*tls.Config{"none": with(), "a stranger's": with(stranger)} {
			if got, err := fetch(t, url, c, "", ""); err == nil {
				t.Errorf("with %s: %d", name, got)
			}
		}
		// other files, then ones that are wrong
		if later, err := reload(d, DoorFiles{Cert: cert, Key: key,
			ClientCA: strangerFile}); err != nil || len(later) > 0 {
			t.Fatal(later, err)
		}
		if got, err := fetch(t, url, with(client), "", ""); err == nil {
			t.Errorf("with a certificate of the former issuer: %d", got)
		}
		if _, err := reload(d, DoorFiles{Cert: cert, Key: caFile, ClientCA: caFile}); err == nil {
			t.Error("a certificate was taken for a key")
		}
		if got, err := fetch(t, url, with(stranger), "", ""); got != 200 {
			t.Errorf("after a failed reload: %d, %v", got, err)
		}
		// what is asked for stays until a restart
		later, err := reload(d, DoorFiles{Users: users})
		if want := []string{"metrics_tls_cert", "metrics_tls_key", "metrics_client_ca",
			"metrics_users"}; err != nil || !slices.Equal(later, want) {
			t.Errorf("later %v, %v; want %v", later, err, want)
		}
		if got, err := fetch(t, url, with(), "", ""); err == nil {
			t.Errorf("a reload opened the door: %d", got)
		}
	})
	t.Run("new certificate", func(t *testing.T) {
		d, err := NewDoor(DoorFiles{Cert: cert, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		addr := serveMetrics(t, d)
		serial := func() *big.Int {
			c, err := tls.Dial("tcp", addr, with())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			return c.ConnectionState().PeerCertificates[0].SerialNumber
		}
		before := serial()
		_, newCert, newKey := signed(t, dir, "newer", &ca)
		if _, err := reload(d, DoorFiles{Cert: newCert, Key: newKey}); err != nil {
			t.Fatal(err)
		}
		if after := serial(); after.Cmp(before) == 0 {
			t.Error("the former certificate is still shown")
		}
		if left := time.Until(d.NotAfter()); left < 50*time.Minute || left > time.Hour {
			t.Errorf("it ends in %v", left)
		}
	})
}

// reload puts files in force.
func reload(d *Door, f DoorFiles) (later []string, err error) {
	later, use, err := d.Prepare(f)
	if err == nil {
		use()
	}
	return later, err
}

func TestDoorRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, cert, key := signed(t, dir, "server", nil)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	dear, err := bcrypt.GenerateFromPassword([]byte("x"), 4)
	if err != nil {
		t.Fatal(err)
	}
	costly := strings.Replace(string(dear), "$04$", "$15$", 1)
	for name, tt := range map[string]struct {
		files DoorFiles
		want  string
	}{
		"no file":     {DoorFiles{Cert: filepath.Join(dir, "none"), Key: key}, "metrics_tls_cert"},
		"no key":      {DoorFiles{Cert: cert, Key: filepath.Join(dir, "none")}, "metrics_tls_key"},
		"wrong key":   {DoorFiles{Cert: cert, Key: cert}, "in PEM"},
		"no CA":       {DoorFiles{Cert: cert, Key: key, ClientCA: file("a", "x")}, "in PEM"},
		"a password":  {DoorFiles{Users: file("b", "bob:secret word\n")}, "b:1 is not a name"},
		"no name":     {DoorFiles{Users: file("c", ":"+string(dear))}, "c:1 is not a name"},
		"high cost":   {DoorFiles{Users: file("d", "bob:"+costly)}, "cost 14"},
		"nobody":      {DoorFiles{Users: file("e", "# none\n")}, "names 0 users"},
		"a folder":    {DoorFiles{Users: dir}, "not a regular file"},
		"a huge file": {DoorFiles{Users: file("f", strings.Repeat("#", 2<<20))}, "more than"},
	} {
		_, err := NewDoor(tt.files)
		if err == nil || !strings.Contains(err.Error(), tt.want) ||
			strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
