package master

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clustermaster/keystore"
)

// TestStubsAreFiles: a stub that is a link or a folder accepts nobody, for who may write only there
// could name any file.
func TestStubsAreFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "plain")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	a := newAutosign(Options{AutosignDir: dir}, slog.New(slog.DiscardHandler))
	for id, want := range map[string]keystore.Auto{
		"plain": keystore.AutoAccept, "link": keystore.AutoNone, "folder": keystore.AutoNone,
		"nosuch": keystore.AutoNone,
	} {
		if got, _ := a.decide(id, nil, time.Now()); got != want {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
}

// TestSignFileIsReadAgain: a change counts although size and time of modification stay, as after
// rsync or chgrp.
func TestSignFileIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sign")
	at := time.Now().Add(-time.Hour)
	f := signFile{path: path, log: slog.New(slog.DiscardHandler)}
	for _, id := range []string{"web1", "web2"} {
		if err := errors.Join(os.WriteFile(path, []byte(id), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		if !f.matches(id) {
			t.Errorf("%s: the file has %q", id, f.lines())
		}
	}
}
