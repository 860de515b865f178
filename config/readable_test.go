package config

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestUnreadable names the files that another user than the owner can't read.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name         string
		folder, file os.FileMode
		group        bool
		user, want   string
	}{
		{name: "for root alone", folder: 0o755, file: 0o600, user: "nobody", want: "&& chmod 0640 "},
		{name: "for all", folder: 0o755, file: 0o644, user: "nobody"},
		{name: "another group", folder: 0o755, file: 0o640, user: "nobody", want: "chgrp "},
		{name: "its group", folder: 0o755, file: 0o640, group: true, user: "nobody"},
		{name: "a closed folder", folder: 0o700, file: 0o644, user: "nobody", want: "let it enter "},
		{name: "root reads all", folder: 0o700, file: 0o600, user: "root"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "unreadable") // t.TempDir may be closed to others
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			added := filepath.Join(dir, "master.d", "cluster.conf")
			for _, step := range []func() error{
				func() error { return os.Chmod(dir, 0o755) },
				func() error { return os.Mkdir(filepath.Dir(added), 0o700) },
				func() error { return os.WriteFile(filepath.Join(dir, "master"), []byte("user: "+tt.user+"\n"), 0o644) },
				func() error { return os.WriteFile(added, []byte("timeout: 7\n"), 0o600) },
				func() error { return os.Chmod(filepath.Dir(added), tt.folder) },
				func() error { return os.Chmod(added, tt.file) },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.group {
				if err := os.Chown(added, -1, gid); err != nil {
					t.Skip("only root gives files away")
				}
			}
			o, _, err := Load(dir, func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			got := o.Unreadable()
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 ||
				!strings.HasPrefix(got[0], added+": the master's user nobody can't read it: ") ||
				!strings.Contains(got[0], tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
