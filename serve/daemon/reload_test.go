package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermaster/config"
)

// write makes a file, and the folder above it.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// running is a reloader with the options of a folder. Its log goes to said.
func running(t *testing.T, dir string) (r *reloader, said *bytes.Buffer) {
	t.Helper()
	o, _, err := config.Load(dir, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := openLogging(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(lines.close)
	said = new(bytes.Buffer)
	return &reloader{flags: masterFlags{configDir: dir}, lines: lines, opts: o, inForce: o,
		log: slog.New(slog.NewTextHandler(said, nil))}, said
}

// checked is the outcome of config check, without the checks of other packages.
func checked(t *testing.T, dir string) (code int, printed string) {
	t.Helper()
	stdout, stderr := os.Stdout, os.Stderr
	f, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	os.Stdout, os.Stderr = f, f
	code = CheckConfig([]string{"check", "-c", dir},
		func(*config.Options) ([]string, error) { return []string{"a doubt"}, nil })
	os.Stdout, os.Stderr = stdout, stderr
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(b)
}

// TestBrokenInclude: a running master keeps the options of a file that can no longer be read, and
// config check refuses it.
func TestBrokenInclude(t *testing.T) {
	dir := t.TempDir()
	acl := filepath.Join(dir, "master.d", "acl.conf")
	const good = "publisher_acl_blacklist: {modules: [cmd.run]}\n"
	write(t, filepath.Join(dir, "master"), "log_file: ''\n")
	write(t, acl, good)
	r, said := running(t, dir)
	check := func() (code int, printed string) { return checked(t, dir) }
	if code, printed := check(); code != 0 {
		t.Fatal(code, printed)
	}
	for name, spoil := range map[string]func(){
		"no YAML":  func() { write(t, acl, "publisher_acl_blacklist: {\n") },
		"a folder": func() { write(t, filepath.Join(acl, "file"), "") },
	} {
		if err := os.RemoveAll(acl); err != nil {
			t.Fatal(err)
		}
		spoil()
		said.Reset()
		r.reload()
		if len(r.opts.PublisherACLBlacklist) == 0 {
			t.Errorf("%s: the blacklist is gone", name)
		}
		if text := said.String(); !strings.Contains(text, "options not reloaded") ||
			!strings.Contains(text, acl) || strings.Contains(text, "options reloaded") {
			t.Errorf("%s: the log says %s", name, text)
		}
		if code, printed := check(); code != ExitConfig || strings.Count(printed, "\n") != 1 ||
			!strings.HasPrefix(printed, acl+": nothing of this file is used: ") {
			t.Errorf("%s: config check: %d %s", name, code, printed)
		}
	}
	if err := os.RemoveAll(acl); err != nil {
		t.Fatal(err)
	}
	r.reload()
	if len(r.opts.PublisherACLBlacklist) > 0 {
		t.Errorf("the blacklist of a file that was removed stays: %s", said)
	}
}

// TestMainFileDisappears: the rights in it stay in force until it is there again.
func TestMainFileDisappears(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "master")
	write(t, main, "log_file: ''\npublisher_acl_blacklist: {modules: [cmd.run]}\n")
	r, said := running(t, dir)
	if err := os.Remove(main); err != nil {
		t.Fatal(err)
	}
	r.reload()
	if len(r.options().PublisherACLBlacklist) == 0 || len(r.opts.PublisherACLBlacklist) == 0 ||
		!strings.Contains(said.String(), "old ones stay in force: "+main+" has disappeared") {
		t.Errorf("the blacklist is %v: %s", r.options().PublisherACLBlacklist, said)
	}
	write(t, main, "")
	r.reload()
	if len(r.opts.PublisherACLBlacklist) > 0 {
		t.Errorf("an empty file is not read: %s", said)
	}
}

// TestFailedReload: where one part refuses other options, none is used, and the former files are
// the state that is in force.
func TestFailedReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	main := filepath.Join(dir, "master")
	taken := filepath.Join(dir, "taken") // a folder, so no log file
	write(t, filepath.Join(taken, "file"), "")
	const plain = "log_file: ''\nnodegroups: {group: 'web*'}\n"
	write(t, main, plain)
	r, said := running(t, dir)
	inForce := r.opts.Nodegroups
	refuse := error(nil)
	r.live = func(now *config.Options, changed []string) ([]string, []func(), error) {
		live := slices.DeleteFunc(slices.Clone(changed),
			func(name string) bool { return name == "publish_port" })
		return live, []func(){func() { inForce = now.Nodegroups }}, refuse
	}
	reload := func(text, group, want string) {
		t.Helper()
		write(t, main, text)
		said.Reset()
		r.reload()
		if got := fmt.Sprint(inForce); !strings.Contains(got, group) {
			t.Errorf("in force is %s, want %s", got, group)
		}
		if !strings.Contains(said.String(), want) {
			t.Errorf("want %s: %s", want, said)
		}
		// A master that is opened again gets these.
		o := r.options()
		if got := fmt.Sprint(o.Nodegroups, o.Extra["nodegroups"]); strings.Count(got, group) != 2 ||
			o.PublishPort != 4505 || o.Extra["publish_port"] != nil {
			t.Errorf("opened again with %s and port %d, want %s and 4505", got, o.PublishPort, group)
		}
	}
	const other = "nodegroups: {group: 'db*'}\n"
	reload("log_file: "+taken+"\n"+other, "web*", "options not reloaded")
	reload(plain, "web*", `in_force=""`)
	log := filepath.Join(dir, "log")
	refuse = errors.New("refused")
	reload("log_file: "+log+"\n"+other, "web*", "options not reloaded")
	if _, err := os.Stat(log); err == nil {
		t.Error("the log went to the other file")
	}
	refuse = nil
	reload("log_file: "+log+"\n"+other, "db*", `in_force="log_file nodegroups"`)
	const moved = "publish_port: 14505\n" // needs a restart
	reload("log_file: "+log+"\n"+moved+other, "db*", "options=publish_port")
	reload("log_file: "+log+"\n"+moved+"nodegroups: {group: 'mail*'}\n", "mail*",
		"in_force=nodegroups")
	if o := r.options(); o.LogFile != log {
		t.Errorf("opened again with the log file %q, want %q", o.LogFile, log)
	}
}
