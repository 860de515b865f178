package settings

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"clustermaster/serve/fileserver"
)

// TestPillarFiles: the options of the file server hide no file of pillar_roots.
func TestPillarFiles(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "linked.sls")
	for _, err := range []error{
		os.Mkdir(filepath.Join(root, "top"), 0o700),
		os.WriteFile(filepath.Join(root, "top", "in.sls"), nil, 0o600),
		os.WriteFile(filepath.Join(root, "top.sls"), nil, 0o600), os.WriteFile(outside, nil, 0o600),
		os.Symlink(outside, filepath.Join(root, "linked.sls")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := fileserver.New(PillarFiles(loadWhole(t, "pillar_roots: {base: ["+root+"]}\n"+
		"fileserver_followsymlinks: False\nfileserver_ignoresymlinks: True\n"+
		"file_ignore_glob: ['*.sls']\nfile_ignore_regex: [top]\n")), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"linked.sls", "top.sls", "top/in.sls"}
	if got := s.List("base"); !slices.Equal(got, want) {
		t.Errorf("listed %v", got)
	}
	for _, name := range want {
		if _, _, found, err := s.Read("base", name); !found || err != nil {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
	}
}
