package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"clustermaster/tools/monitoring"
)

// PrometheusProgram is the path of prometheus. Without it the test is skipped.
func PrometheusProgram(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("needs prometheus (Debian's package prometheus); run make test")
	}
	return path
}

// doorCertificate writes a self-signed certificate for addresses and its key into one file.
func doorCertificate(t testing.TB, path string, serial int64, addrs []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "door"},
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	for _, a := range addrs {
		c.IPAddresses = append(c.IPAddresses, net.ParseIP(a))
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeFiles writes files below a folder, which only the user may read.
func writeFiles(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// prometheus is a running Prometheus.
type prometheus struct{ base string }

// startPrometheus runs a Prometheus with its own folder on the balancer's address.
func startPrometheus(t *testing.T, c *Cluster, program, config string) prometheus {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"prometheus.yml": config})
	p := prometheus{base: "http://" + net.JoinHostPort(c.Base.Balancer(), "9090")}
	process := Process{Name: "prometheus", Output: filepath.Join(dir, "prometheus.log")}
	ShowOnFailure(t, process.Output)
	process.Start(t, program, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+strings.TrimPrefix(p.base, "http://"))
	return p
}

// ask gets the API's data at a path.
func (p prometheus) ask(path string, query url.Values, data any) error {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(p.base + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var body struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if body.Status != "success" {
		return fmt.Errorf("%s: %s", body.Status, body.Error)
	}
	return json.Unmarshal(body.Data, data)
}

// series is one result of a query.
type series struct {
	Metric map[string]string
	Value  [2]any // time, number as text
}

func (s series) number() float64 {
	text, _ := s.Value[1].(string)
	v, _ := strconv.ParseFloat(text, 64)
	return v
}

func (p prometheus) query(expr string) ([]series, error) {
	var data struct{ Result []series }
	err := p.ask("/api/v1/query", url.Values{"query": {expr}}, &data)
	return data.Result, err
}

// is waits until a query has exactly one result and good accepts it.
func (p prometheus) is(t *testing.T, expr string, good func(v float64) bool) {
	t.Helper()
	Eventually(t, 60*time.Second, expr, func() error {
		got, err := p.query(expr)
		if err != nil || len(got) != 1 || !good(got[0].number()) {
			return fmt.Errorf("%v %v", got, err)
		}
		return nil
	})
}

// dashboardQueries are the panels' queries, with the dashboard's variables filled in.
func dashboardQueries(t *testing.T) []string {
	t.Helper()
	board, err := monitoring.ParseBoard(monitoring.Dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, monitoring.Query(target.Expr, 8*time.Second))
		}
	}
	return all
}

// TestMonitoring: a real Prometheus fetches the metrics of a real cluster with TLS and a password.
// All queries of the dashboard have results, the rules load and notice the loss of a master, and a
// new certificate is served after SIGHUP.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	program := PrometheusProgram(t)
	dir := t.TempDir()
	cert, users := filepath.Join(dir, "door.pem"), filepath.Join(dir, "users")
	phrase := filepath.Join(dir, "phrase")
	hash, err := bcrypt.GenerateFromPassword([]byte("scrape me"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"users": "prometheus:" + string(hash) + "\n",
		"phrase": "correct horse battery\n", "password": "scrape me"})
	c := NewCluster(t, ClusterOptions{Programs: Ours(t), Extra: fmt.Sprintf(
		"metrics_tls_cert: %s\nmetrics_tls_key: %[1]s\nmetrics_users: %s\nauto_accept: True\n"+
			"backup_dir: %s\nbackup_passphrase_file: %s\n",
		cert, users, filepath.Join(dir, "backups"), phrase)})
	doorCertificate(t, cert, 1, c.Addrs())
	for _, m := range c.Masters {
		writeFiles(t, m.Dir, map[string]string{
			"srv/top.sls":    "base: {'*': [good]}\n",
			"srv/good.sls":   "{% set x = 1 %}\nfine: {test.succeed_with_changes: []}\nbad: {test.fail_without_changes: []}\n",
			"pillar/top.sls": "base: {'*': [p]}\n", "pillar/p.sls": "{% set x = 1 %}\na: {{ x }}\n",
		})
	}
	c.Start(t)
	minion := c.AddMinions(t, "mon", "", "3008.3")[0]

	var targets []string
	for _, m := range c.Masters {
		targets = append(targets, fmt.Sprintf("'%s:%d'", m.Addr, MetricsPort))
	}
	config := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: clustermaster
    scheme: https
    tls_config: {ca_file: %s}
    basic_auth: {username: prometheus, password_file: %s}
    static_configs: [{targets: [%s]}]
`, filepath.Join(Root(t), "tools", "monitoring", "alerts.yml"), cert,
		filepath.Join(dir, "password"), strings.Join(targets, ", "))
	p := startPrometheus(t, c, program, config)
	p.is(t, "sum(up)", func(v float64) bool { return v == 3 })
	Eventually(t, 60*time.Second, "the minion answers", func() error {
		if ids, r := c.Masters[0].Ping(t); len(ids) != 1 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})

	p.is(t, "sum(clustermaster_cluster_leader)", func(v float64) bool { return v == 1 })
	p.is(t, "min(clustermaster_cluster_quorum_margin)", func(v float64) bool { return v == 1 })
	p.is(t, "count(clustermaster_cluster_peer_lag_entries < 100)", func(v float64) bool { return v == 6 })
	p.is(t, "sum(clustermaster_minion_subscribers)", func(v float64) bool { return v == 1 })
	p.is(t, "min(clustermaster_backup_age_seconds)", func(v float64) bool { return v < 120 })
	for range 2 { // rates are known from the second fetch on
		if r := c.Masters[1].Salt(t, minion.ID, "state.apply", "good"); r.Code == 0 {
			t.Errorf("a failed state: %v", r)
		}
	}
	p.is(t, `sum(clustermaster_state_results_total{result="failed"})`,
		func(v float64) bool { return v == 2 })
	p.is(t, "sum(clustermaster_state_changes_total)", func(v float64) bool { return v == 2 })
	p.is(t, `sum(clustermaster_minions_heard{within="10m"})`, func(v float64) bool { return v >= 1 })

	t.Run("Dashboard", func(t *testing.T) {
		open := dashboardQueries(t)
		Eventually(t, 60*time.Second, "all queries have results", func() error {
			var failed []error
			open = slices.DeleteFunc(open, func(expr string) bool {
				got, err := p.query(expr)
				if err != nil || len(got) == 0 {
					failed = append(failed, fmt.Errorf("%s: %d results, %w", expr, len(got), err))
					return false
				}
				return true
			})
			return errors.Join(failed...)
		})
	})
	t.Run("Strangers", func(t *testing.T) {
		resp, err := (&http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}).Get(
			fmt.Sprintf("https://%s:%d/metrics", c.Masters[0].Addr, MetricsPort))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a password: %s", resp.Status)
		}
	})
	t.Run("NewCertificate", func(t *testing.T) {
		doorCertificate(t, cert, 2, c.Addrs())
		m := c.Masters[0]
		m.Signal(t, syscall.SIGHUP)
		Eventually(t, 20*time.Second, "the new certificate is shown", func() error {
			conn, err := tls.Dial("tcp", fmt.Sprintf("%s:%d", m.Addr, MetricsPort),
				&tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err
			}
			defer conn.Close()
			if n := conn.ConnectionState().PeerCertificates[0].SerialNumber; n.Int64() != 2 {
				return fmt.Errorf("certificate %v", n)
			}
			return nil
		})
		m.Configure(t, m.Config(t)+"metrics_client_ca: "+cert+"\n")
		m.Signal(t, syscall.SIGHUP)
		Eventually(t, 20*time.Second, "the log names the option",
			fileHas(m.Log, "options=metrics_client_ca"))
		for _, other := range c.Others(m) {
			other.Signal(t, syscall.SIGHUP)
		}
		p.is(t, "sum(up)", func(v float64) bool { return v == 3 })
	})
	t.Run("LostLeader", func(t *testing.T) {
		leader := c.Leader(t, c.Masters[0])
		alive := c.Others(leader)
		of := func(m *Master) string { return fmt.Sprintf(`instance="%s:%d"`, m.Addr, MetricsPort) }
		changes := "clustermaster_cluster_leader_changes_total{" + of(alive[0]) + "}"
		var before float64
		p.is(t, changes, func(v float64) bool { before = v; return v >= 1 })
		leader.Kill(t)
		p.is(t, "sum(clustermaster_cluster_leader)", func(v float64) bool { return v == 1 })
		p.is(t, changes, func(v float64) bool { return v > before })
		p.is(t, "max(clustermaster_cluster_quorum_margin)", func(v float64) bool { return v == 0 })
		p.is(t, fmt.Sprintf("min(clustermaster_cluster_peer_silent_seconds{peer=%q})", leader.ID),
			func(v float64) bool { return v > 3 })
		for _, alert := range []string{"ClustermasterDown", "ClustermasterNoSpareVoter"} {
			p.is(t, fmt.Sprintf("count(ALERTS{alertname=%q})", alert),
				func(v float64) bool { return v == 1 })
		}
	})
}
