package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

// A Saltfile has defaults of the flags, as with Salt; flags that are given win.
func TestSaltfile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "Saltfile")
	if err := os.WriteFile(path, []byte("salt-master: {config_dir: /a, log_level: debug, "+
		"daemon: True, pidfile: /p, user: null}\nsalt: {user: other}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, _, err := parseMasterFlags([]string{"--saltfile", path, "-l", "info"})
	if want := (masterFlags{configDir: "/a", logLevel: "info", daemon: true, pidFile: "/p"}); err != nil || f != want {
		t.Errorf("%+v, %v, want %+v", f, err, want)
	}
	_, _, err = parseMasterFlags([]string{"--saltfile", path + ".none"})
	if want := "'" + path + ".none' file does not exist.\n"; err == nil || usage(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestAbsolute: a master that leaves its folder finds its files again.
func TestAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", "/home/x")
	for _, tt := range []struct {
		given, want     masterFlags
		folder, file    string // of the environment
		wants, wantFile string
	}{
		{given: masterFlags{configDir: "a", pidFile: "b", logFile: "c/d"},
			want: masterFlags{configDir: dir + "/a", pidFile: dir + "/b", logFile: dir + "/c/d"}},
		{given: masterFlags{configDir: "~/a", pidFile: "/b", logFile: "udp://h:514"},
			want: masterFlags{configDir: "/home/x/a", pidFile: "/b", logFile: "udp://h:514"}},
		{folder: "a", wants: dir + "/a"},
		{folder: "~/a", wants: "/home/x/a", file: "b", wantFile: dir + "/b"},
	} {
		t.Setenv("SALT_CONFIG_DIR", tt.folder)
		t.Setenv("SALT_MASTER_CONFIG", tt.file)
		f := tt.given
		err := f.absolute()
		folder, file := os.Getenv("SALT_CONFIG_DIR"), os.Getenv("SALT_MASTER_CONFIG")
		if err != nil || f != tt.want || folder != tt.wants || file != tt.wantFile {
			t.Errorf("%+v: %+v, %q, %q, %v", tt, f, folder, file, err)
		}
	}
}

// An unknown flag is refused in the words of Salt's commands.
func TestUnknownFlags(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"--unknown-argument": "no such option: --unknown-argument",
		"--nosuch=1":         "no such option: --nosuch",
		"-z":                 "no such option: -z",
		"--pid-file":         "flag needs an argument: --pid-file",
	} {
		_, _, err := parseMasterFlags([]string{arg})
		if err == nil || usage(err) != want {
			t.Errorf("%s: %v, want %s", arg, usage(err), want)
		}
	}
}
