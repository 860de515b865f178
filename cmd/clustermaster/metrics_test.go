package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"clustermaster/config"
)

var updateMetrics = flag.Bool("update-metrics", false, "write docs/metrics.md")

// catalogue is a registry that remembers what was registered.
type catalogue struct {
	*prometheus.Registry
	all []prometheus.Collector
}

func (c *catalogue) Register(x prometheus.Collector) error {
	c.all = append(c.all, x)
	return c.Registry.Register(x)
}

func (c *catalogue) MustRegister(all ...prometheus.Collector) {
	for _, x := range all {
		if err := c.Register(x); err != nil {
			panic(err)
		}
	}
}

// metric is one line of docs/metrics.md.
type metric struct {
	name, kind, help string
	labels           []string
}

var descOf = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: (".*?")(?:, unit: "[^"]*")?, ` +
	`constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// metricsOf lists what a collector has.
func metricsOf(t *testing.T, c prometheus.Collector) []metric {
	t.Helper()
	descs := make(chan *prometheus.Desc, 1000)
	c.Describe(descs)
	close(descs)
	var out []metric
	for d := range descs {
		m := descOf.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("unreadable: %s", d)
		}
		if !strings.HasPrefix(m[1], "clustermaster_") {
			continue
		}
		help, err := strconv.Unquote(m[2])
		if err != nil {
			t.Fatalf("unreadable: %s", d)
		}
		one := metric{name: m[1], help: help, kind: kindOf(t, c, d)}
		for label := range strings.SplitSeq(m[3]+","+m[4], ",") {
			if name, _, _ := strings.Cut(label, "="); name != "" {
				one.labels = append(one.labels, name)
			}
		}
		out = append(out, one)
	}
	return out
}

// kindOf is a metric's type: that of its vector, else that of a sample.
func kindOf(t *testing.T, c prometheus.Collector, d *prometheus.Desc) string {
	t.Helper()
	switch c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	}
	samples := make(chan prometheus.Metric, 1000)
	c.Collect(samples)
	close(samples)
	for s := range samples {
		if s.Desc() != d {
			continue
		}
		var m dto.Metric
		if err := s.Write(&m); err != nil {
			t.Fatal(err)
		}
		switch {
		case m.GetCounter() != nil:
			return "counter"
		case m.GetGauge() != nil:
			return "gauge"
		case m.GetHistogram() != nil:
			return "histogram"
		}
	}
	t.Fatalf("%s: no sample tells its type", d)
	return ""
}

// openWhole opens a master with all of its parts.
func openWhole(t *testing.T, reg registry) *process {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", filepath.Join(dir, "remote")).
		CombinedOutput(); err != nil {
		t.Fatalf("git (apt-get install git): %v: %s", err, out)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	options := fmt.Sprintf(`id: m1
interface: 127.0.0.1
root_dir: %[1]s
pki_dir: %[1]s/pki
cachedir: %[1]s/cache
sock_dir: %[1]s/sock
log_file: %[1]s/log
file_roots: {base: [%[1]s/roots]}
pillar_roots: {base: [%[1]s/pillar]}
cluster_id: metrics
cluster_peers: [127.0.0.2]
cluster_secret: a secret of more than 32 characters, certainly
cluster_pool_port: %[2]d
cluster_isolated_filesystem: True
cluster_pki_dir: %[1]s/shared
backup_dir: %[1]s/backups
backup_passphrase_file: %[1]s/phrase
enable_clear_commands: True
fileserver_backend: [roots, gitfs]
gitfs_remotes: ['file://%[1]s/remote']
external_auth: {auto: {alice: ['test.*']}}
metrics_tls_cert: %[1]s/door.pem
metrics_tls_key: %[1]s/door.pem
event_return: pgjsonb
traces_endpoint: http://127.0.0.1:4318
python_host: /bin/true
`, dir, port)
	selfSigned(t, filepath.Join(dir, "door.pem"), time.Now().Add(time.Hour))
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(options), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"sock", "cache", "pki", "shared", "backups", "roots", "pillar"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o, _, err := config.Load(dir, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	r := newProcess(o, reg, nil, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		r.close()
		if r.git != nil {
			r.git.Close()
		}
	})
	if err := r.open(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(r.sock.Serve(ended), r.local.Serve(ended), r.node.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// ownMetrics opens a master with everything that has metrics, and lists them, sorted by name.
func ownMetrics(t *testing.T) []metric {
	t.Helper()
	reg := &catalogue{Registry: prometheus.NewRegistry()}
	openWhole(t, reg)
	byName := map[string]metric{}
	for _, c := range reg.all {
		for _, m := range metricsOf(t, c) {
			byName[m.name] = m
		}
	}
	var out []metric
	for _, m := range byName {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return out
}

// selfSigned writes a certificate and its key into one file.
func selfSigned(t *testing.T, path string, ends time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: ends}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

const metricsPage = `# Metrics

Every master serves these at ` + "`/metrics`" + ` (option ` + "`metrics_listen`" + `), beside those of the Go runtime
(` + "`go_*`" + `) and of the process (` + "`process_*`" + `). How to fetch, judge and show them:
[monitoring.md](monitoring.md). A metric of a part that the options leave out is missing. No label
names a minion or a job; ` + "`peer`" + ` and ` + "`node`" + ` name masters, others have the fixed values that the
text or the source lists.

` + "`make references`" + ` writes this page.

| metric | type | labels | meaning |
|---|---|---|---|
`

// TestMetricsAreDocumented compares docs/metrics.md with what a master registers.
func TestMetricsAreDocumented(t *testing.T) {
	var b strings.Builder
	b.WriteString(metricsPage)
	all := ownMetrics(t)
	for _, m := range all {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "),
			strings.ReplaceAll(m.help, "|", "\\|"))
	}
	if len(all) < 150 {
		t.Errorf("%d metrics: a part of the master was not opened", len(all))
	}
	path := filepath.Join("..", "..", "docs", "metrics.md")
	if *updateMetrics {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Error("docs/metrics.md is not what the masters serve: run make references")
	}
}

// named finds metrics in a text, with the names of the labels that it gives them.
var named = regexp.MustCompile(`clustermaster_[a-z_]*[a-z](?:\{[^}]*\})?`)

var labelNamed = regexp.MustCompile(`([a-z_]+)\s*(?:=|!)`)

// notMetrics are other things of that prefix.
var notMetrics = []string{"clustermaster_export"}

// TestMetricsInPagesExist finds metrics and labels in the pages that no master serves.
func TestMetricsInPagesExist(t *testing.T) {
	labels := map[string][]string{}
	for _, m := range ownMetrics(t) {
		labels[m.name] = m.labels
		if m.kind == "histogram" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				labels[m.name+part] = append([]string{"le"}, m.labels...)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatal(pages, err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllString(string(text), -1) {
			name, with, _ := strings.Cut(m, "{")
			have, known := labels[name]
			if slices.Contains(notMetrics, name) {
				continue
			}
			found++
			if !known {
				t.Errorf("%s: no master serves %s", page, name)
			}
			for _, l := range labelNamed.FindAllStringSubmatch(with, -1) {
				if !slices.Contains(append([]string{"instance", "job"}, have...), l[1]) {
					t.Errorf("%s: %s has no label %s", page, name, l[1])
				}
			}
		}
	}
	if found < 200 {
		t.Errorf("%d metrics found in the pages", found)
	}
}
