package migrate

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"clustermaster/config"
	"clustermaster/value"
)

// saltLog writes entries as Salt 3008.3 does: one file each, with its kind and command.
func saltLog(t *testing.T, dir string, entries ...value.Map) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		kind, _ := e.Get("kind")
		b, err := value.PackNew([]any{1, i, e.Without("kind"), nil, kind, nil, nil})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)+".p"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func entry(kind int, pairs ...any) value.Map {
	m := value.Map{{Key: "kind", Value: kind}}
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}

// machines reads a snapshot.
func machines(t *testing.T, path string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := value.UnpackMap(b)
	if err != nil {
		t.Fatal(err)
	}
	if index, _ := m.Get("index"); index != int64(-1) {
		t.Errorf("index %v, so Salt would leave out entries of its log", index)
	}
	data, err := base64.StdEncoding.DecodeString(m.String("data"))
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		Kind     string         `json:"__envelope__"`
		Machines map[string]any `json:"machines"`
	}
	if err := json.Unmarshal(data, &envelope); err != nil || envelope.Kind != "raft.snapshot.v1" {
		t.Fatalf("%s: %v", data, err)
	}
	return envelope.Machines
}

func TestServesAlone(t *testing.T) {
	cache := t.TempDir()
	o := &config.Options{CacheDir: cache, Interface: "10.0.0.1"}
	if n, err := servesAlone(o); n != 0 || err != nil {
		t.Errorf("without a cluster: %d %v", n, err)
	}
	node := filepath.Join(cache, "cluster", "consensus", "10.0.0.1")
	saltLog(t, filepath.Join(node, "cluster", "log"),
		entry(saltMembers, "voters", []string{"10.0.0.1"}, "learners", []string{}),
		entry(saltMembers, "voters", []string{"10.0.0.1"}, "learners", []string{"10.0.0.2"}),
		entry(saltRingExists, "ring_id", "jobs", "founding_voters", []string{"10.0.0.2", "10.0.0.1"}),
		entry(saltRingExists, "ring_id", "old", "founding_voters", []string{"10.0.0.1"}),
		entry(saltRoute, "data_type", "jobs", "ring_id", "jobs"),
		entry(saltRoute, "data_type", "events", "ring_id", nil),
		entry(saltRingExists, "ring_id", "old", "status", "destroyed"),
		entry(saltMembers, "voters", []string{"10.0.0.2", "10.0.0.1"}, "learners", []string{}))
	saltLog(t, filepath.Join(node, "jobs", "log"),
		entry(saltMembers, "voters", []string{"10.0.0.1", "10.0.0.2"}),
		entry(saltRing, "replicas", 2), entry(saltRing, "members", "voters"))
	saltLog(t, filepath.Join(cache, "cluster", "consensus", "10.0.0.2", "cluster", "log"))
	for range 2 { // its own snapshot it writes again
		if n, err := servesAlone(o); n != 2 || err != nil {
			t.Fatalf("%d voters, %v", n, err)
		}
	}
	for name, want := range map[string]string{
		"cluster": `{
			"membership_sm":{"learners":[],"version":7,"voters":["10.0.0.1","10.0.0.2"]},
			"ring_registry_sm":{"rings":{
				"jobs":{"founding_voters":["10.0.0.1","10.0.0.2"],"status":"active"},
				"old":{"founding_voters":["10.0.0.1"],"status":"destroyed"}},"version":6},
			"routing_sm":{"routes":{"events":null,"jobs":"jobs"},"version":5}}`,
		"jobs": `{
			"membership_sm":{"learners":[],"version":0,"voters":["10.0.0.1","10.0.0.2"]},
			"ring_sm":{"members":"voters","replicas":2,"version":2}}`,
	} {
		got, err := json.Marshal(machines(t, filepath.Join(node, name, "snapshot.p")))
		if err != nil {
			t.Fatal(err)
		}
		var wanted any
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if w, _ := json.Marshal(wanted); string(got) != string(w) {
			t.Errorf("%s: %s\nwant %s", name, got, w)
		}
	}
	if _, err := os.Stat(filepath.Join(cache, "cluster", "consensus", "10.0.0.2", "cluster",
		"snapshot.p")); err == nil {
		t.Error("it wrote for another master that uses the same cachedir")
	}
}

func TestSnapshotsOfSaltStay(t *testing.T) {
	o := &config.Options{CacheDir: t.TempDir(), Interface: "10.0.0.1"}
	dir := filepath.Join(o.CacheDir, "cluster", "consensus", "10.0.0.1", "cluster")
	saltLog(t, filepath.Join(dir, "log"), entry(saltMembers, "voters", []string{"10.0.0.1"}))
	salt, err := value.PackNew(value.Map{{Key: "data", Value: ""}, {Key: "index", Value: 0},
		{Key: "term", Value: 1}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "snapshot.p")
	if err := os.WriteFile(path, salt, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := servesAlone(o); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != string(salt) {
		t.Errorf("Salt's own snapshot was replaced: %q %v", b, err)
	}
	if err := os.Rename(filepath.Join(dir, "log", "0.p"), filepath.Join(dir, "log", "1.p")); err != nil {
		t.Fatal(err)
	}
	if _, err := servesAlone(o); err == nil {
		t.Error("a log without its first entry was taken for a whole one")
	}
}
