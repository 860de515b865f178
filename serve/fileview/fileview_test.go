package fileview

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/serve/fileserver"
	"clustermaster/serve/gitfs"
	"clustermaster/serve/gitfs/gitfstest"
	"clustermaster/store/ringstore"
	"clustermaster/store/ringstore/ringtest"
	"clustermaster/store/uploads"
	"clustermaster/value"
)

// repository makes one with a commit that adds a file, on branch master.
func repository(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	for _, args := range [][]string{
		{"init", "-q", "-b", "master", dir},
		{"-C", dir, "add", "-A"},
		{"-C", dir, "-c", "user.name=Ada", "-c", "user.email=a@example.org", "commit", "-qm", "one"},
	} {
		if args[2] == "add" {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return "file://" + dir
}

// option is Salt's default of an option of git remotes.
func option(name string) any {
	return map[string]any{
		"base": "master", "update_interval": int64(60), "ssl_verify": true,
		"refspecs":  []any{"+refs/heads/*:refs/remotes/origin/*"},
		"ref_types": []any{"branch"},
	}[name]
}

func store(t *testing.T, files, pillars []any) *gitfs.Store {
	t.Helper()
	dir := t.TempDir()
	s, problems, err := gitfs.New(gitfs.Options{Dir: filepath.Join(dir, "git"), CacheDir: dir,
		Files:   gitfs.Config{Role: gitfs.RoleFiles, Remotes: files, Global: option},
		Pillars: []gitfs.Config{{Role: gitfs.RolePillar, Remotes: pillars, Global: option}},
	}, gitfs.Agreed{Cluster: gitfstest.New()}, nil, nil, nil)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	t.Cleanup(s.Close)
	return s
}

// TestUpdate updates back ends and remotes that an operator names, and reports what failed of them.
func TestUpdate(t *testing.T) {
	t.Parallel()
	good, bad := repository(t, "in-git"), "file:///nowhere/at-all"
	git := store(t, []any{good, bad}, nil)
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "in-roots"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := fileserver.New(fileserver.Options{Roots: []fileserver.Env{{Name: "base",
		Roots: []string{root}}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	server.Use([]string{fileserver.Roots, gitfs.RoleFiles}, git)
	looks := 0
	f := Files{Server: server, Git: git, Changed: func(fileserver.Changes) { looks++ }}
	for _, tt := range []struct {
		only, remotes []string
		looks         int    // at file_roots so far
		want          string // part of the error
		files         []string
	}{
		{[]string{fileserver.Roots}, nil, 1, "", []string{"in-roots"}},
		{[]string{gitfs.RoleFiles}, []string{"other"}, 1, "has the name or id other",
			[]string{"in-roots"}},
		{nil, []string{bad}, 2, "gitfs remote " + bad, []string{"in-roots"}},
		{nil, nil, 3, "", []string{"in-git", "in-roots"}}, // the log tells of the bad one
	} {
		err := f.Update(t.Context(), tt.only, tt.remotes)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil ||
			!strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v %v: %v, want %q", tt.only, tt.remotes, err, tt.want)
		}
		if looks != tt.looks {
			t.Errorf("%v %v: %d looks at file_roots, want %d", tt.only, tt.remotes, looks, tt.looks)
		}
		f.Forget("base", nil)
		got := f.List("base", nil)
		slices.Sort(got)
		if !slices.Equal(got, tt.files) {
			t.Errorf("%v %v: files %v, want %v", tt.only, tt.remotes, got, tt.files)
		}
	}
	if got := f.ClearCache([]string{fileserver.Roots}); got != nil {
		t.Errorf("cleared %v of roots", got)
	}
	if got := f.ClearCache(nil); !slices.Equal(got, []string{gitfs.RoleFiles}) {
		t.Errorf("cleared %v", got)
	}
	if got, err := f.Lock(t.Context(), []string{fileserver.Roots}, "", true); got != nil ||
		err != nil {
		t.Errorf("locked %v of roots, %v", got, err)
	}
}

// TestGit shows, updates and lists remotes, with a store and without.
func TestGit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	url := repository(t, "top.sls")
	pillars := []any{"master " + url}
	g := Git{Store: store(t, nil, pillars), ID: "m1"}
	want := func(branch, repo string, want value.Map) {
		t.Helper()
		got, err := g.UpdatePillars(ctx, branch, repo)
		if err != nil || !value.Equal(got, want) {
			t.Errorf("branch %q, repo %q: %v, %v, want %v", branch, repo, got, err, want)
		}
	}
	want("dev", "", value.Map{})
	want("", "file:///other", value.Map{})
	want("master", url, value.Map{{Key: "master " + url, Value: true}})
	want("master", url, value.Map{{Key: "master " + url, Value: nil}}) // nothing new
	status, err := g.GitStatus(ctx, "")
	if err != nil || len(status) != 1 || !slices.Equal(status[0].Holders, []string{"m1"}) ||
		len(status[0].Envs) != 1 {
		t.Errorf("status %+v, %v", status, err)
	}
	folders, err := g.Folders(ctx, pillars, "", "")
	if err != nil || len(folders) != 1 || folders[0].Env != "base" {
		t.Fatalf("folders %+v, %v", folders, err)
	}
	if names, err := folders[0].Files.List(ctx); err != nil ||
		!slices.Equal(names, []string{"top.sls"}) {
		t.Errorf("files %v, %v", names, err)
	}
	if got := g.ids([]string{"m2/7", ""}); !slices.Equal(got, []string{"m2", "m1"}) {
		t.Errorf("ids %v", got)
	}
	none := Git{ID: "m1"}
	if _, err := none.GitStatus(ctx, ""); err == nil || !strings.Contains(err.Error(), "set gitfs") {
		t.Errorf("status without remotes: %v", err)
	}
	if _, err := none.Folders(ctx, pillars, "", ""); err == nil {
		t.Error("folders without remotes")
	}
	if got, err := none.UpdatePillars(ctx, "", ""); got != nil || err != nil {
		t.Errorf("update without remotes: %v, %v", got, err)
	}
}

// TestPushed lists, reads and deletes a file that a minion pushed.
func TestPushed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := Pushed{Files: uploads.New(ringtest.Alone(t, ringstore.Options{}), time.Now), Dir: t.TempDir()}
	if ok, err := p.Files.Append(ctx, "web1", "etc/x", 0, 3, []byte("abc")); !ok || err != nil {
		t.Fatal(ok, err)
	}
	files, incomplete, err := p.List(ctx)
	if err != nil || incomplete != "" || len(files) != 1 || files[0].ID != "web1" ||
		files[0].Size != 3 {
		t.Errorf("list %+v, %q, %v", files, incomplete, err)
	}
	var b bytes.Buffer
	if err := p.Read(ctx, "web1", "etc/x", &b); err != nil || b.String() != "abc" {
		t.Errorf("read %q, %v", b.String(), err)
	}
	path, err := p.Export(ctx, "web1", "etc/x")
	if err != nil || !strings.HasPrefix(path, p.Dir) {
		t.Errorf("export to %q, %v", path, err)
	}
	if err := p.Delete(ctx, "web1", "etc/x"); err != nil {
		t.Error(err)
	}
	if files, _, _ := p.List(ctx); len(files) > 0 {
		t.Errorf("deleted, but listed: %+v", files)
	}
}
