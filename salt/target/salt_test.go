package target_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"clustermaster/salt/target"
	"clustermaster/salt/target/targettest"
	"clustermaster/value"
)

// different are the questions that are answered otherwise on purpose; the reasons stand in
// docs/differences.md.
var different = map[string]bool{"compound T@x:y": true, "compound R@%webs": true,
	"glob web*,db*": true}

// TestLikeSalt asks Salt's own matchers and ours about the same minions.
func TestLikeSalt(t *testing.T) {
	t.Parallel()
	venvs := os.Getenv("CLUSTERMASTER_SALT_VENVS")
	if venvs == "" {
		t.Skip("needs CLUSTERMASTER_SALT_VENVS; run make test")
	}
	w := targettest.New()
	if len(w.Targets) < 200 {
		t.Fatalf("%d targets", len(w.Targets))
	}
	minions := map[string]any{}
	for _, id := range w.IDs {
		minions[id] = nil
		if w.Grains[id] != nil {
			data := map[string]any{"grains": plain(w.Grains[id])}
			if w.Pillar[id] != nil {
				data["pillar"] = plain(w.Pillar[id])
			}
			minions[id] = data
		}
	}
	var asked []any
	for _, q := range w.Targets {
		asked = append(asked, []any{q.Type, q.Expr, q.Greedy})
	}
	b, err := json.Marshal(map[string]any{"minions": minions, "nodegroups": plain(w.Nodegroups),
		"targets": asked})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "world.json")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(venvs, "salt-3008.3", "bin", "python"),
		"testdata/match.py", path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var theirs [][]string
	if err := json.Unmarshal(out, &theirs); err != nil || len(theirs) != len(w.Targets) {
		t.Fatal(err, len(theirs))
	}
	for i, q := range w.Targets {
		found, err := target.Match(t.Context(), q.Type, q.Expr, "", w, q.Greedy)
		if err != nil {
			t.Errorf("%v: %v", q, err)
		}
		ours := slices.Clone(found.Minions)
		slices.Sort(ours)
		key := fmt.Sprintf("%s %v", q.Type, q.Expr)
		same := slices.Equal(ours, theirs[i])
		if same == different[key] {
			t.Errorf("%s (greedy %v): ours %d %v, Salt's %d %v", key, q.Greedy, len(ours),
				ours[:min(len(ours), 5)], len(theirs[i]), theirs[i][:min(len(theirs[i]), 5)])
		}
	}
	t.Logf("%d targets over %d minions", len(w.Targets), len(w.IDs))
}

func plain(v any) any {
	switch v := v.(type) {
	case value.Map:
		out := map[string]any{}
		for _, p := range v {
			out[p.Key.(string)] = plain(p.Value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	}
	if f, ok := v.(float64); ok {
		return json.RawMessage(fmt.Sprintf("%.1f", f)) // 1.0 stays a float
	}
	return v
}
