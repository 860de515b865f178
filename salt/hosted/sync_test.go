package hosted_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"clustermaster/salt/pythonhost"
	"clustermaster/value"
)

// TestSync copies modules from file_roots as Salt's runner does; the next pillar has them.
func TestSync(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, python(t, release), nil)
			path := filepath.Join(s.root, "files/_modules/synced.py")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("def name():\n    return 'from file_roots'\n"),
				0o644); err != nil {
				t.Fatal(err)
			}
			before := s.host.Session(pythonhost.Minion{ID: "web1",
				Grains: value.Map{{Key: "kernel", Value: "Linux"}}})
			if found, err := before.Has(t.Context(), "synced.name"); found || err != nil {
				t.Errorf("before: %v %v", found, err)
			}
			before.Close()
			sync := s.host.Session(pythonhost.Minion{})
			got, err := sync.Call(t.Context(),
				pythonhost.Call{Kind: pythonhost.Runner, Fun: "saltutil.sync_modules",
					Kwargs: value.Map{{Key: "saltenv", Value: "base"}}})
			sync.Close()
			if err != nil || fmt.Sprint(got) != "[{return [modules.synced]} {success true} {retcode 0}]" {
				t.Fatalf("got %v %v", got, err)
			}
			after := s.host.Session(pythonhost.Minion{ID: "web1",
				Grains: value.Map{{Key: "kernel", Value: "Linux"}}})
			defer after.Close()
			v, err := after.Call(t.Context(),
				pythonhost.Call{Kind: pythonhost.Module, Fun: "synced.name"})
			if err != nil || v != "from file_roots" {
				t.Errorf("after: %v %v", v, err)
			}
		})
	}
}
