package fileserver

import (
	"path/filepath"
	"slices"
	"testing"

	"clustermaster/value"
)

func TestStagedContentsAreNotServed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, filepath.Join(root, "top.sls"), "base: {}\n")
	write(t, filepath.Join(root, StagingDir, "x", "half.sls"), "half")
	write(t, filepath.Join(root, "sub", StagingDir, "half.sls"), "half")
	s, err := New(Options{Roots: []Env{{Name: "base", Roots: []string{root}}},
		FollowSymlinks: true}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	base := value.Map{{Key: "saltenv", Value: "base"}}
	for cmd, want := range map[string][]string{"_file_list": {"top.sls"}, "_dir_list": {"sub"},
		"_file_list_emptydirs": {"sub"}} {
		got, err := s.Serve(t.Context(), cmd, base)
		if names, _ := got.([]string); err != nil || !slices.Equal(names, want) {
			t.Errorf("%s: got %v %v, want %v", cmd, got, err, want)
		}
	}
	for _, path := range []string{StagingDir + "/x/half.sls", "sub/" + StagingDir + "/half.sls",
		"sub/../" + StagingDir + "/x/half.sls"} {
		for _, cmd := range []string{"_file_find", "_file_hash", "_serve_file"} {
			got, err := s.Serve(t.Context(), cmd, base.Set("path", path).Set("loc", int64(0)))
			if err != nil {
				t.Fatal(err)
			}
			if m, ok := got.(value.Map); ok && (m.String("path") != "" || m.String("hsum") != "" ||
				m.String("data") != "") {
				t.Errorf("%s %s: got %v", cmd, path, got)
			}
		}
	}
	if f, ok, _ := s.find(t.Context(), "top.sls", "base"); !ok || f.rel != "top.sls" {
		t.Error("a file beside the staging folder is not found")
	}
}
