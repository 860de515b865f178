package smallfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(path("ten"), []byte("0123456789"), 0o600),
		os.Symlink("ten", path("link")), syscall.Mkfifo(path("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		limit int64
		wrong string // in the error; "": the ten bytes are read
	}{
		{"ten", 10, ""}, {"ten", 11, ""}, {"link", 10, ""}, {"ten", 9, "more than 9 bytes"},
		{"ten", 0, "more than 0 bytes"},
		{"pipe", 10, "not a regular file"}, {".", 10, "not a regular file"},
		{"../../dev/zero", 10, "no such file"},
	} {
		b, err := Read(path(c.name), c.limit)
		if c.wrong == "" && (err != nil || string(b) != "0123456789") || c.wrong != "" &&
			(err == nil || !strings.Contains(err.Error(), c.wrong) || b != nil) {
			t.Errorf("%s up to %d: %q, %v", c.name, c.limit, b, err)
		}
	}
	if _, err := Read("/dev/zero", 10); err == nil {
		t.Error("a device is read")
	}
	if _, err := Read(path("none"), 10); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
