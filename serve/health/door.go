package health

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"

	"clustermaster/store/smallfile"
)

// DoorFiles are who may read metrics over a network. Empty ones ask for nothing.
type DoorFiles struct {
	Cert, Key string // PEM, of the listener; with them it speaks TLS only
	ClientCA  string // PEM; the certificates that a client's must be signed by one of
	Users     string // lines of name:bcrypt hash, as htpasswd -B writes them
}

// Bounds of the files, and of what a guess at a password may cost.
const (
	maxDoorFile = 1 << 20
	maxUsers    = 1000
	maxCost     = 14          // of bcrypt: about a second
	maxGood     = 64          // passwords that are known to be good
	guessTime   = time.Second // that a request waits for its turn to be checked
)

// Door lets readers of metrics in. Safe for concurrent use.
type Door struct {
	lock  atomic.Pointer[lock]
	guess chan struct{} // capacity 1: bcrypt takes a processor

	mu    sync.Mutex // guards files
	files DoorFiles  // that lock was read from
}

// lock is what the files said when they were last read.
type lock struct {
	cert    *tls.Certificate
	clients *x509.CertPool
	users   map[string][]byte // nil: no password is asked for

	mu   sync.Mutex // guards good
	good map[[sha256.Size]byte]bool
}

// NewDoor reads the files.
func NewDoor(f DoorFiles) (*Door, error) {
	l, err := readLock(f)
	if err != nil {
		return nil, err
	}
	d := &Door{guess: make(chan struct{}, 1), files: f}
	d.lock.Store(l)
	return d, nil
}

// Prepare reads other files, or the same again; use puts the certificates and users in force. An
// error changes nothing. What is asked for (TLS, a client's certificate, a password) is decided at
// the start, as the listener's address is: later names the options that came or went, whose former
// files stay in force.
func (d *Door) Prepare(f DoorFiles) (later []string, use func(), err error) {
	d.mu.Lock()
	was := d.files
	d.mu.Unlock()
	differ := func(a, b string) bool { return (a == "") != (b == "") }
	if differ(was.Cert, f.Cert) {
		later = append(later, "metrics_tls_cert", "metrics_tls_key")
		f.Cert, f.Key = was.Cert, was.Key
	}
	if differ(was.ClientCA, f.ClientCA) {
		later, f.ClientCA = append(later, "metrics_client_ca"), was.ClientCA
	}
	if differ(was.Users, f.Users) {
		later, f.Users = append(later, "metrics_users"), was.Users
	}
	l, err := readLock(f)
	if err != nil {
		return nil, nil, err
	}
	return later, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.files = f
		d.lock.Store(l)
	}, nil
}

func readLock(f DoorFiles) (*lock, error) {
	l := &lock{good: map[[sha256.Size]byte]bool{}}
	if f.Cert != "" {
		cert, err := smallfile.Read(f.Cert, maxDoorFile)
		if err != nil {
			return nil, fmt.Errorf("metrics_tls_cert: %w", err)
		}
		key, err := smallfile.Read(f.Key, maxDoorFile)
		if err != nil {
			return nil, fmt.Errorf("metrics_tls_key: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("metrics_tls_cert %s with metrics_tls_key %s: %w; give a "+
				"certificate and its key in PEM", f.Cert, f.Key, err)
		}
		l.cert = &pair
	}
	if f.ClientCA != "" {
		pem, err := smallfile.Read(f.ClientCA, maxDoorFile)
		if err != nil {
			return nil, fmt.Errorf("metrics_client_ca: %w", err)
		}
		l.clients = x509.NewCertPool()
		if !l.clients.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("metrics_client_ca: %s holds no certificate in PEM", f.ClientCA)
		}
	}
	if f.Users != "" {
		text, err := smallfile.Read(f.Users, maxDoorFile)
		if err != nil {
			return nil, fmt.Errorf("metrics_users: %w", err)
		}
		if l.users, err = readUsers(f.Users, string(text)); err != nil {
			return nil, fmt.Errorf("metrics_users: %w", err)
		}
	}
	return l, nil
}

func readUsers(path, text string) (map[string][]byte, error) {
	users := map[string][]byte{}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, hash, _ := strings.Cut(line, ":")
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil || name == "" || cost > maxCost {
			// the line may hold a password in clear, so it is not shown
			return nil, fmt.Errorf("%s:%d is not a name, a colon and a bcrypt hash of cost %d or "+
				"less; write it with htpasswd -B", path, n, maxCost)
		}
		users[name] = []byte(hash)
	}
	if len(users) == 0 || len(users) > maxUsers {
		return nil, fmt.Errorf("%s names %d users; 1 to %d are needed, a line each: name and bcrypt "+
			"hash (htpasswd -B)", path, len(users), maxUsers)
	}
	return users, nil
}

// Register shows how long the listener's certificate is good, where there is one.
func (d *Door) Register(reg prometheus.Registerer) {
	if d.NotAfter().Unix() > 0 {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "clustermaster_metrics_certificate_seconds",
			Help: "Time until the certificate of metrics_tls_cert ends.",
		}, func() float64 { return time.Until(d.NotAfter()).Seconds() }))
	}
}

// NotAfter is when the listener's certificate ends; zero without TLS.
func (d *Door) NotAfter() time.Time {
	l := d.lock.Load()
	if l.cert == nil || l.cert.Leaf == nil {
		return time.Time{}
	}
	return l.cert.Leaf.NotAfter
}

// listen wraps a listener into TLS, unless there is no certificate.
func (d *Door) listen(ln net.Listener) net.Listener {
	if d.lock.Load().cert == nil {
		return ln
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			l := d.lock.Load()
			c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*l.cert},
				NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true}
			if l.clients != nil {
				c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, l.clients
			}
			return c, nil
		},
	})
}

// guard asks for a password, unless there are no users.
func (d *Door) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := d.lock.Load()
		if l.users == nil {
			h.ServeHTTP(w, r)
			return
		}
		name, password, _ := r.BasicAuth()
		good, checked := d.check(r, l, name, password)
		switch {
		case !checked:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		case !good:
			w.Header().Set("WWW-Authenticate", `Basic realm="metrics"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// nobody is the hash that names without one are checked against, so that they take as long.
var nobody = sync.OnceValue(func() []byte {
	hash, _ := bcrypt.GenerateFromPassword([]byte("nobody"), bcrypt.DefaultCost)
	return hash
})

// check compares a password. One check runs at a time; checked is false for a request that waited
// in vain. A password that was good is known at once.
func (d *Door) check(r *http.Request, l *lock, name, password string) (good, checked bool) {
	sum := sha256.Sum256([]byte(name + "\x00" + password))
	l.mu.Lock()
	known := l.good[sum]
	l.mu.Unlock()
	if known {
		return true, true
	}
	wait := time.NewTimer(guessTime)
	defer wait.Stop()
	select {
	case d.guess <- struct{}{}:
		defer func() { <-d.guess }()
	case <-wait.C:
		return false, false
	case <-r.Context().Done():
		return false, false
	}
	hash, named := l.users[name]
	if !named {
		hash = nobody()
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || !named {
		return false, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.good) >= maxGood {
		clear(l.good)
	}
	l.good[sum] = true
	return true, true
}
