package commands

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func copyScenes() []scene {
	// several pieces of salt_cp_chunk_size
	big := bytes.Repeat([]byte("0123456789abcdef\x00\xff\n"), 20000)
	tree := func(t *testing.T, p *pair) {
		for _, s := range p.sides() {
			for name, text := range map[string][]byte{"motd": []byte("hello\n"), "big": big,
				"tree/a.conf": []byte("a\n"), "tree/sub/b.sh": []byte("b\n")} {
				path := filepath.Join(s.Dir, "src", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(filepath.Join(s.Dir, "src/tree/sub/b.sh"), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("motd", filepath.Join(s.Dir, "src/link")); err != nil {
				t.Fatal(err)
			}
			for _, d := range []string{"src/tree/none", "to", "links"} {
				if err := os.MkdirAll(filepath.Join(s.Dir, d), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return []scene{{name: "27_salt_cp", before: tree, lines: []line{
		cp("web-a", "DIR/src/motd", "DIR/to/motd").writes("DIR/to/motd"),
		cp("web-a", "DIR/src/motd", "DIR/src/tree/a.conf", "DIR/to/"),
		cp("-L", "web-a,web-b", "DIR/src/motd", "DIR/to/both").anyOrder(),
		cp("web-a", "DIR/src/link", "DIR/src/../src/link", "DIR/links/").writes("DIR/links/motd"),
		cp("-C", "web-a", "DIR/src/big", "DIR/to/big").writes("DIR/to/big"),
		cp("-C", "-n", "web-a", "DIR/src/big", "DIR/to/plain").writes("DIR/to/plain"),
		cp("-C", "web-a", "DIR/src/motd", "DIR/to/dir/").writes("DIR/to/dir/motd"),
		cp("-C", "web-a", "DIR/src/tree", "DIR/to").blocks(`^ {4}DIR`),
		salt("web-a", "file.get_mode", "DIR/to/tree/sub/b.sh"),
		salt("web-a", "file.directory_exists", "DIR/to/tree/none"),
		cp("web-a", "DIR/src/tree", "DIR/to/x"),
		// the earlier copy stays as it is
		cp("web-a", "DIR/src/motd", "DIR/src/big", "DIR/to/motd").writes("DIR/to/motd").unlike(
			"Python's tracebacks", prints("in the file:\nhello\n",
				"ERROR: DIR/src/big is not UTF-8 text; copy it with -C (--chunked)\n", 1)),
		cp("-C", "web-a", "DIR/src/nosuch", "DIR/to/x"),
		cp("web-a", "DIR/src/nosuch", "DIR/to/x").unlike("Missing sources of salt-cp",
			prints("", "none of the source files exists; check the paths\n", 0)),
		cp("web-a", "DIR/src/motd", "/dev/null/x"),
		cp("nosuch", "DIR/src/motd", "DIR/to/x"),
		cp("-C", "nosuch", "DIR/src/motd", "DIR/to/x"),
		cp("web-a", "DIR/src/motd", "DIR/to/motd", "--out=json"),
		cp("web-a", "DIR/src/motd").unlike("Help",
			begins("Usage: salt-cp [options] '<target>' SOURCE DEST\n", "", 64)),
	}}}
}
