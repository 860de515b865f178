package modules

import (
	"os"
	"path/filepath"
)

// folders are file_roots on disk: an environment to its root.
type folders map[string]string

func (f folders) List(string) []string { return nil }
func (f folders) Dirs(string) []string { return nil }
func (f folders) Envs() []string       { return nil }

func (f folders) Open(env, path string) (string, []byte, bool, error) {
	root, ok := f[env]
	if !ok {
		return "", nil, false, nil
	}
	abs := filepath.Join(root, path)
	if info, err := os.Stat(abs); err != nil || !info.Mode().IsRegular() {
		return "", nil, false, nil
	}
	b, err := os.ReadFile(abs)
	return abs, b, err == nil, err
}

// placeSteps look at files of file_roots.
func placeSteps() []step {
	var list []step
	for _, p := range []string{"salt://a", "salt://b.conf", "salt://nosuch", "salt://sub",
		"salt://sub/c.conf", "DIR/tree/b.conf", "DIR/tree/to-b", "DIR/nosuch", "DIR/tree",
		"relative", "salt://c.sls?saltenv=dev", "salt://to-b", ""} {
		list = append(list, do("cp.stat_file", p), do("cp.stat_file", p, nil, false),
			do("cp.stat_file", p, "base"))
	}
	return append(list, do("cp.stat_file", "salt://c.sls", "dev"),
		do("cp.stat_file", "salt://c.sls", "nosuch"), do("cp.stat_file",
			"salt://b.conf").with("octal", int64(1)), do("cp.stat_file", int64(5)),
		do("cp.stat_file"))
}
