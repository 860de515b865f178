package migrate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"clustermaster/config"
	"clustermaster/value"
)

// Accepted minions of 3007 are counted from the cached grains, once each, where 3006 and 3007 keep
// them and where 3008 does.
func TestMinionsThatHang(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files map[string]value.Map // below cachedir
		want  int
	}{
		{"none is known", nil, 0},
		{"other releases", map[string]value.Map{"minions/a/data.p": grains("3006.28"),
			"grains/b.p": versionGrain("3008.3"), "grains/c.p": versionGrain("13007.1")}, 0},
		{"3007", map[string]value.Map{"minions/a/data.p": grains("3007.15"),
			"grains/a.p": versionGrain("3007.15"), "grains/b.p": versionGrain("3007.1"),
			"minions/gone/data.p": grains("3007.15"), "grains/pending.p": versionGrain("3007.15"),
			"minions/c/data.p": {{Key: "grains", Value: "none"}}}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := &config.Options{}
			o.CacheDir = t.TempDir()
			for name, data := range tt.files {
				b, err := value.Pack(data)
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(o.CacheDir, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			broken := filepath.Join(o.CacheDir, "minions", "b")
			if err := os.MkdirAll(broken, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(broken, "data.p"), []byte{0xc1}, 0o600); err != nil {
				t.Fatal(err)
			}
			p := &Plan{options: o, MasterKey: "any", Minions: []Finding{},
				accepted: map[string]bool{"a": true, "b": true, "c": true, "pending": false}}
			p.caches()
			p.Disk.Free = p.Disk.Need
			got, code := 0, exitGood
			if len(p.Minions) > 0 {
				got = p.Minions[0].Count
			}
			if tt.want > 0 {
				code = exitDifferently
			}
			if got != tt.want || len(p.Minions) != min(tt.want, 1) || p.code() != code {
				t.Errorf("%+v, code %d", p.Minions, p.code())
			}
			var page bytes.Buffer
			p.print(&page)
			asJSON, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{page.String(), string(asJSON)} {
				if strings.Contains(text, "return_retry_tries: 1") != (tt.want > 0) {
					t.Error(text)
				}
			}
			if tt.want > 0 && !strings.Contains(page.String(), "works differently: 2 run Salt 3007") {
				t.Error(page.String())
			}
		})
	}
}

func versionGrain(release string) value.Map {
	return value.Map{{Key: "saltversion", Value: release}}
}

func grains(release string) value.Map {
	return value.Map{{Key: "grains", Value: versionGrain(release)}, {Key: "pillar", Value: value.Map{}}}
}
