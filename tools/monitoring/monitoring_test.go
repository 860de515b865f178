package monitoring

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

type rules struct {
	Groups []struct {
		Rules []rule
	}
}

type rule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var r rules
	if err := yaml.Unmarshal([]byte(Alerts), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Groups) != 1 || len(r.Groups[0].Rules) < 20 {
		t.Fatalf("%d groups of rules", len(r.Groups))
	}
	return r.Groups[0].Rules
}

// promtool is the path of promtool. Without it the test is left out.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool (Debian's package prometheus); run make test")
	}
	return path
}

// TestAlerts runs the tests of the rules.
func TestAlerts(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"},
		{"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestEveryAlertIsTested: each rule has a test in which it fires and one in which it does not.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				rests[a.Alertname] = true
			}
		}
	}
	for _, r := range alerts(t) {
		if !fires[r.Alert] || !rests[r.Alert] {
			t.Errorf("%s: tested to fire %v, to rest %v", r.Alert, fires[r.Alert], rests[r.Alert])
		}
	}
}

var noAnchor = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchors are the places of a page that links may name, as GitHub makes them of headings.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok &&
			strings.HasPrefix(line, "#") {
			name := noAnchor.ReplaceAllString(strings.ToLower(title), "")
			out[strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	return out
}

// installed is where packages put the pages.
const installed = "file:///usr/share/doc/clustermaster/docs/"

// TestRunbooks: each alert says what it is about, how bad it is, and links to a place that exists.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "docs")
	for _, r := range alerts(t) {
		page, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		name, ok := strings.CutPrefix(page, installed)
		if !ok || !anchors(t, filepath.Join(docs, name))[anchor] {
			t.Errorf("%s: no such place: %s", r.Alert, r.Annotations["runbook_url"])
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s: no summary", r.Alert)
		}
	}
}

var pageLink = regexp.MustCompile(`\]\(([a-z-]*\.md)?(#[a-z0-9_-]+)?\)`)

// TestRunbookLinks follows the links of docs/monitoring.md.
func TestRunbookLinks(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "docs")
	text, err := os.ReadFile(filepath.Join(docs, "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range pageLink.FindAllStringSubmatch(string(text), -1) {
		page := m[1]
		if page == "" {
			page = "monitoring.md"
		}
		places := anchors(t, filepath.Join(docs, page))
		if found++; m[2] != "" && !places[m[2][1:]] {
			t.Errorf("%s%s does not exist", page, m[2])
		}
	}
	if found < 15 {
		t.Errorf("%d links", found)
	}
}

var metricName = regexp.MustCompile(`clustermaster_[a-z_]*[a-z]`)

// TestMetricsAreKnown: what rules and dashboard ask for is in docs/metrics.md, which is made from
// the code.
func TestMetricsAreKnown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := metricName.FindAllString(Alerts+string(Dashboard), -1)
	if len(names) < 60 {
		t.Errorf("%d metrics", len(names))
	}
	for _, name := range names {
		base := name
		for _, part := range []string{"_bucket", "_count", "_sum"} {
			base = strings.TrimSuffix(base, part)
		}
		if !bytes.Contains(page, []byte("`"+base+"`")) {
			t.Errorf("no master serves %s", name)
		}
	}
}

// TestDashboard: it is JSON, its panels do not overlap, and each has a query. One that is about
// names shows them.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d, err := ParseBoard(Dashboard)
	if err != nil {
		t.Fatal(err)
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := taken[at]; other != "" || at[0] >= 24 {
					t.Fatalf("%s lies on %s, or outside", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
		if p.FieldConfig.Defaults.Unit == "string" && p.Options.TextMode != "name" {
			t.Errorf("%s: Grafana would show the number, not the name", p.Title)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s has no query", p.Title)
		}
	}
	if len(d.Panels) < 30 {
		t.Errorf("%d panels", len(d.Panels))
	}
}
