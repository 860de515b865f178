package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestChunkedCopy: pieces are sent in order, and a minion gets none after one
// that it failed to write.
func TestChunkedCopy(t *testing.T) {
	t.Parallel()
	src := filepath.Join(t.TempDir(), "big")
	content := bytes.Repeat([]byte("0123456789abcdef"), 2*chunkSize/16)
	content = append(content, "end"...)
	if err := os.WriteFile(src, content, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(src, 0o640); err != nil { // whatever the umask
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{minions: map[string]minion{"web-a": {answer: true,
			after: time.Millisecond},
			"web-b": {answer: "No space left on device", retcode: int64(1)}}}
		run(t, SaltCP, d, "", "-C", "web-*", src, "/srv/").check(t, 0,
			"web-a:\n    ----------\n    /srv/big:\n        True\nweb-b:\n    ----------\n    /srv/big:\n        No space left on device\n", "")
		var arrived []byte
		for i, p := range d.published {
			want := "web-* glob"
			if i > 0 {
				want = "[web-a] list"
			}
			if got := fmt.Sprint(p.Tgt, " ", p.TgtType); got != want || p.Fun != "cp.recv_chunked" {
				t.Errorf("piece %d went to %s by %v, want %s", i, got, p.Fun, want)
			}
			if got := fmt.Sprint(p.Arg[0], p.Arg[2:]); got != fmt.Sprintf("/srv/big[%v true 416]",
				i > 0) {
				t.Errorf("piece %d has %s", i, got)
			}
			packed, err := base64.StdEncoding.DecodeString(p.Arg[1].(string))
			if err != nil {
				t.Fatal(err)
			}
			z, err := gzip.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			piece, err := io.ReadAll(z)
			if err != nil || len(piece) > chunkSize {
				t.Fatalf("piece %d of %d bytes, %v", i, len(piece), err)
			}
			arrived = append(arrived, piece...)
		}
		if len(d.published) != 3 || !bytes.Equal(arrived, content) {
			t.Errorf("%d pieces with %d bytes, want 3 with %d", len(d.published), len(arrived),
				len(content))
		}
	})
	run(t, SaltCP, three(), "", "-C", "*", src+"x", "/srv/").check(t, exitNoSource, "",
		src+"x does not exist\n")
}

// TestChunkedLinks: folders behind links are copied, one that contains itself once; a link that
// leads nowhere is a missing source.
func TestChunkedLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	gone := filepath.Join(src, "gone")
	if err := errors.Join(os.MkdirAll(filepath.Join(src, "a"), 0o755),
		os.MkdirAll(filepath.Join(dir, "other", "deep"), 0o755),
		os.Mkdir(filepath.Join(dir, "other", "empty"), 0o755),
		os.WriteFile(filepath.Join(src, "a", "one"), []byte("1"), 0o644),
		os.WriteFile(filepath.Join(dir, "other", "deep", "two"), []byte("2"), 0o644),
		os.Symlink("../other", filepath.Join(src, "linked")),
		os.Symlink("../other", filepath.Join(src, "twice")),
		os.Symlink("..", filepath.Join(src, "a", "loop")),
		os.Symlink("self", filepath.Join(src, "self"))); err != nil {
		t.Fatal(err)
	}
	d := &fakeDaemon{minions: map[string]minion{"web-a": {answer: true}}}
	if r := run(t, SaltCP, d, "", "-C", "*", src, "/srv"); r.code != 0 || r.stderr != "" {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	var got []any
	for _, p := range d.published {
		got = append(got, p.Arg[0])
	}
	if want := []any{"/srv/src/a/one", "/srv/src/linked/deep/two", "/srv/src/twice/deep/two",
		"/srv/src/linked/empty", "/srv/src/twice/empty"}; !slices.Equal(got, want) {
		t.Errorf("copied %v, want %v", got, want)
	}
	if err := os.Symlink("nowhere", gone); err != nil {
		t.Fatal(err)
	}
	d.published = nil
	run(t, SaltCP, d, "", "-C", "*", src, "/srv").check(t, exitNoSource, "",
		gone+" does not exist\n")
	if len(d.published) > 0 {
		t.Errorf("copied %v", d.published)
	}
}
