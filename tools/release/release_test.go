package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestSBOM(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1700000000, 0)
	text, err := sbom(program, "1.2.3", at)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := sbom(program, "1.2.3", at); err != nil || !bytes.Equal(text, again) {
		t.Error("the same program has two SBOMs", err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.BOMFormat != "CycloneDX" || d.Metadata.Component.Version != "1.2.3" ||
		d.Metadata.Timestamp != "2023-11-14T22:13:20Z" || len(d.SerialNumber) != 45 {
		t.Errorf("%+v", d)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("no build info")
	}
	named := map[string]string{}
	for _, c := range d.Components {
		named[c.Name] = c.Version
	}
	for _, m := range info.Deps {
		if named[m.Path] != m.Version {
			t.Errorf("%s is listed as %q", m.Path, named[m.Path])
		}
	}
	if named["std"] == "" || len(d.Components) != len(info.Deps)+1 {
		t.Errorf("%d components of %d modules", len(d.Components), len(info.Deps))
	}
	if len(d.Dependencies) != 1 || len(d.Dependencies[0].DependsOn) != len(d.Components) {
		t.Errorf("dependencies %v", d.Dependencies)
	}
	if err := run([]string{"main.go", "1", "2"}, &bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), "not a program that Go built") {
		t.Errorf("a text: %v", err)
	}
}

// TestSignature: what was changed, added or signed by somebody else is refused.
func TestSignature(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s (apt-get install openssh-client): %v\n%s", name, err, out)
		}
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := filepath.Join(dir, "release")
	signers := filepath.Join(dir, "signers")
	for _, who := range []string{"ours", "strange"} {
		must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", filepath.Join(dir, who))
	}
	pub, err := os.ReadFile(filepath.Join(dir, "ours.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(signers, "release@example.com "+string(pub))
	for _, tt := range []struct {
		name, key, want string
		change          func()
	}{
		{"whole", "ours", "good: signed by release@example.com", func() {}},
		{"changed", "ours", "files differ", func() { write(filepath.Join(files, "a"), "c") }},
		{"missing", "ours", "files differ", func() { os.Remove(filepath.Join(files, "b")) }},
		{"added", "ours", "c is not in SHA256SUMS", func() { write(filepath.Join(files, "c"), "") }},
		{"somebody else's", "strange", "not signed by anybody", func() {}},
		{"unsigned", "none", "not signed by anybody", func() {}},
		{"other sums", "ours", "not signed by anybody", func() {
			write(filepath.Join(files, "a"), "c")
			must("sh", "-c", "cd "+files+" && sha256sum a b >SHA256SUMS")
		}},
	} {
		if err := os.RemoveAll(files); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(files, 0o700); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(files, "a"), "a")
		write(filepath.Join(files, "b"), "b")
		key := tt.key
		if key != "none" {
			key = filepath.Join(dir, key)
		}
		must("./sign.sh", files, key)
		tt.change()
		out, err := exec.Command("./verify.sh", files, signers).CombinedOutput()
		if !strings.Contains(string(out), tt.want) || (err == nil) != (tt.name == "whole") {
			t.Errorf("%s: %v, want %q:\n%s", tt.name, err, tt.want, out)
		}
	}
}

// TestReleaseRefuses: without a key nothing is built.
func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("./release.sh", "v0")
	cmd.Env = append(os.Environ(), "RELEASE_KEY=")
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 ||
		!strings.Contains(string(out), "RELEASE_KEY=none") {
		t.Errorf("%v: %s", err, out)
	}
}
