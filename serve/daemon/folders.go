package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"clustermaster/config"
)

// makeFolders makes the folders that a master writes to, owned by its user.
func makeFolders(o *config.Options, id identity) error {
	dirs := []struct {
		path string
		mode os.FileMode
	}{
		{o.PkiDir, 0o700}, {o.CacheDir, 0o755}, {o.SockDir, 0o755}, {o.DataDir(), 0o700},
		{filepath.Join(o.CacheDir, "proc"), 0o700}, // Salt's salt-run notes its runs there
	}
	keys := o.PkiDir
	if o.ClusterPkiDir != "" {
		keys = o.ClusterPkiDir
		dirs = append(dirs, struct {
			path string
			mode os.FileMode
		}{keys, 0o700})
	}
	for _, sub := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied",
		"minions_autosign"} {
		dirs = append(dirs, struct {
			path string
			mode os.FileMode
		}{filepath.Join(keys, sub), 0o700})
	}
	for _, d := range dirs {
		if _, err := os.Stat(d.path); err == nil {
			continue
		}
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
		if !id.same {
			if err := os.Chown(d.path, id.uid, id.gid); err != nil {
				return fmt.Errorf("give folder to the master's user: %w", err)
			}
		}
	}
	return nil
}

func writePidfile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// removePidfile removes the file only if it still names this process.
func removePidfile(path string) {
	if b, err := os.ReadFile(path); err == nil && string(b) == strconv.Itoa(os.Getpid()) {
		os.Remove(path)
	}
}
