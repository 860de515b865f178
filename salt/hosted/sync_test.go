package hosted_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"clustermaster/salt/hosted"
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

// TestStage changes modules on a copy, also where a folder is a link. What lies beside the modules,
// and what another call switches to meanwhile, stays.
func TestStage(t *testing.T) {
	t.Parallel()
	exe, root := python(t, releases[len(releases)-1]), place(t)
	ext := filepath.Join(root, "ext")
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	is := func(name, want string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(root, name))
		if got := string(b); got != want || (want == "") != (err != nil) {
			t.Errorf("%s: %q %v, want %q", name, got, err, want)
		}
	}
	put("ext/.git/HEAD", "of the site")
	put("ext/__pycache__/a.pyc", "compiled")
	put("ext/modules/.git/HEAD", "of the modules")
	put("ext/modules/old.py", "")
	put("files/_modules/synced.py", "new")
	for _, kind := range []string{"tops", "grains", "sdb"} {
		put("files/_"+kind+"/m.py", "new")
	}
	host := pythonhost.New(pythonhost.Options{Python: func() (string, error) { return exe, nil },
		ConfFile: root + "/master"}, nil, nil)
	t.Cleanup(func() { host.Close() })
	var another sync.Once
	f := hosted.New(hosted.Deps{Host: host, Folders: hosted.Folders{ExtensionModules: ext},
		Find: func() (string, error) { // is called once the modules are copied
			another.Do(func() { put("ext/apart/other.py", "of another call") })
			return exe, nil
		}})
	got, err := f.Stage(t.Context(), "one", "saltutil.sync_all", nil)
	if err != nil || !strings.Contains(fmt.Sprint(got), "{modules [modules.synced]}") {
		t.Fatal(got, err)
	}
	is("ext/modules/synced.py", "")
	if err := f.Switch(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	is("ext/modules/synced.py", "new")
	is("ext/modules/old.py", "")
	is("ext/tops/m.py", "new")
	is("ext/apart/other.py", "of another call")
	is("ext/.git/HEAD", "of the site")
	is("ext/__pycache__/a.pyc", "compiled")
	is("ext/modules/.git/HEAD", "of the modules")

	for kind, relative := range map[string]bool{"grains": true, "sdb": false} {
		to := filepath.Join(root, "elsewhere", kind)
		put("elsewhere/"+kind+"/m.py", "linked")
		if relative {
			to = "../elsewhere/" + kind
		}
		link := filepath.Join(ext, kind)
		if err := errors.Join(os.RemoveAll(link), os.Symlink(to, link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Stage(t.Context(), "two", "saltutil.sync_all", nil); err != nil {
		t.Fatal(err)
	}
	is("elsewhere/grains/m.py", "linked")
	is("elsewhere/sdb/m.py", "linked")
	if err := f.Switch(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	is("elsewhere/grains/m.py", "new")
	is("elsewhere/sdb/m.py", "new")
}
