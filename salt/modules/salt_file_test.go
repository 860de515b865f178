package modules

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// refused is a step whose error must have Salt's words.
func (s step) refused() step {
	s.worded = true
	return s
}

// fillTree makes the files that fileSteps use.
func fillTree(t *testing.T, dir string) {
	t.Helper()
	files := map[string]string{
		"lines": "one\n# two = 2\r\nthree\rfour=4\n\n\tfive ü\nlast", "empty": "",
		"binary": "a\x00b", "latin": "caf\xe9 au lait\n", "odd": "\x01\x02\x03\x04abc",
		"still":  "12345",
		"tree/a": "12345", "tree/b.conf": "key = value\n", "tree/.hidden": "key = hidden\n",
		"tree/sub/c.conf": "key = c\nother\n", "long": strings.Repeat("x", globPart-1) + "\nend",
		"pillar/a.sls": "", "more/sub/b.sls": "", "dev/c.sls": "",
	}
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755),
			os.WriteFile(p, []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Chmod(at("tree/b.conf"), 0o4755),
		os.Link(at("tree/a"), at("tree/sub/again")), os.Symlink("sub", at("tree/to-sub")),
		os.Symlink("nowhere", at("tree/to-nothing")), os.Symlink("b.conf", at("tree/to-b")),
		os.Symlink("again", at("circle")), os.Symlink("circle", at("again")),
		os.Symlink("more/sub/../gone/x", at("astray")), os.Symlink("more/sub", at("below")),
		os.Symlink("below/../sub/b.sls", at("crooked")),
		os.Symlink("below"+strings.Repeat("/x", 45), at("deep")),
		os.Symlink("ring-b", at("ring-a")), os.Symlink("ring-c", at("ring-b")),
		os.Symlink("below/../../ring-a/y", at("ring-c")), syscall.Mkfifo(at("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(at("odd"), 54321, 54322); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
}

func fileSteps() []step {
	list := []step{
		do("file.find", "DIR/tree"), do("file.find", "DIR/tree/"), do("file.find", "DIR/tree/to-sub"),
		do("file.find", "DIR/tree/to-b"), do("file.find", "DIR/[l-pt]*"), do("file.find", "DIR/tree/*"),
		do("file.find", "DIR/nosuch"), do("file.find", "DIR//tree/./sub"), do("file.find", "DIR/still"),
		do("file.find", "DIR/tree").with("name", "[ab]*.conf"),
		do("file.find", "DIR/tree").with("name", "b.?conf"),
		do("file.find", "DIR/tree").with("name", "b?conf"),
		do("file.find", "DIR/tree").with("name", "a|c"), do("file.find", "DIR/[l-pt]*").with("iname", "TR?EE"),
		do("file.find", "DIR/tree").with("name", "*", "iname", "B*", "type", "f"),
		do("file.find", "DIR/[l-pt]*").with("type", "f d"), do("file.find", "DIR/[l-pt]*").with("type", "l"),
		do("file.find", "DIR/[l-pt]*").with("type", "p,s"), do("file.find", "/dev/null").with("type", "c"),
		do("file.find", "/dev/null").with("type", "f"), do("file.find", "DIR/[l-pt]*").with("type", "d"),
		do("file.find", "DIR/[l-pt]*").with("maxdepth", int64(1)),
		do("file.find", "DIR/[l-pt]*").with("maxdepth", int64(0)),
		do("file.find", "DIR/[l-pt]*").with("mindepth", int64(1), "maxdepth", int64(1)),
		do("file.find", "DIR/tree/").with("mindepth", int64(2), "_own", int64(1)),
		do("file.find", "DIR/[l-pt]*").with("mindepth", int64(9)), do("file.find", "DIR/tree", "own"),
		do("file.pardir"), do("file.lstat", "DIR/still"), do("file.lstat", "DIR/nosuch"),
		do("file.lstat", "relative").refused(), do("file.statvfs", "relative").refused(),
		do("file.statvfs", "DIR/nosuch").refused(), do("file.statvfs", "/proc"),
		do("file.statvfs", "/sys"),
		do("file.diskusage", "DIR/tree"), do("file.diskusage", "DIR/tree/a"),
		do("file.diskusage", "DIR/tree/to-b"), do("file.diskusage", "DIR/tree/to-sub"),
		do("file.diskusage", "DIR/nosuch"), do("file.diskusage", "DIR/tree/"),
		do("file.seek_read", "DIR/lines", int64(5), int64(3)),
		do("file.seek_read", "DIR/lines", "5", "3"),
		do("file.seek_read", "DIR/lines", int64(500), int64(40)),
		do("file.seek_read", "DIR/lines", int64(5), int64(4000)),
		do("file.seek_read", "DIR/lines", int64(-1), int64(0)),
		do("file.seek_read", "DIR/lines", int64(1), int64(-1)),
		do("file.seek_read", "DIR/nosuch", int64(1), int64(1)),
		do("file.seek_read", "DIR/tree", int64(1), int64(1)),
		do("file.seek_read", "DIR/lines", "x", int64(1)),
		do("file.seek_read", "DIR/lines", int64(0), int64(1)),
		do("file.grep", "DIR/lines", "two").except("pid"),
		do("file.grep", "DIR/lines", "nothing").except("pid"),
		do("file.grep", "DIR/nosuch", "x").except("pid"),
		do("file.grep", "DIR/tree/*.conf", "key").except("pid"),
		do("file.grep", "DIR/tree/*", "key", "-s").except("pid"),
		do("file.grep", "DIR/tree", "key", "-r", "--include=c.conf").except("pid"),
		do("file.grep", "DIR/tree/b.conf", "KEY", "-i", "-c").except("pid"),
		do("file.grep", "DIR/lines", "one", "-i -c").refused(),
		do("file.grep", "DIR/lines", "one", int64(1)),
		do("file.grep", "DIR/lines", "one", "'-i").refused(),
		do("file.grep", "DIR/lines", "one", "").except("pid"),
		do("file.grep", "DIR/lines", "o; echo pwned").except("pid"),
		do("file.grep", "DIR/lines", "[").except("pid"),
		do("file.grep", "DIR/lines", "two", "'-n'").except("pid"),
		do("file.path_exists_glob", "DIR/tree/?.conf"), do("file.path_exists_glob", "DIR/*/sub/"),
		do("file.path_exists_glob", "DIR/*/nosuch"),
		do("file.path_exists_glob", "DIR/tree/*hidden"),
		do("file.path_exists_glob", "DIR/tree/.h*"), do("file.path_exists_glob", "DIR/**/c.conf"),
		do("file.path_exists_glob", "DIR/tree/[!a].conf"),
		do("file.path_exists_glob", "DIR/tree/to-noth*"),
		do("file.path_exists_glob", "DIR/tree/a/"), do("file.path_exists_glob", "/"),
		do("file.path_exists_glob", ""), do("file.path_exists_glob", "DIR/tree/a/*"),
		do("file.path_exists_glob", "/e*/pass*"),
	}
	for _, name := range []string{"DIR/pipe", "DIR/still", "/dev/null", "DIR/nosuch",
		"DIR/tree/to-nothing", "DIR/still/below", "DIR", "/dev/loop0", "/dev/sda"} {
		list = append(list, do("file.is_fifo", name), do("file.is_chrdev", name),
			do("file.is_blkdev", name), do("file.is_hardlink", name))
	}
	for _, name := range []string{"DIR/odd", "DIR/tree/to-b", "DIR/tree/to-sub/c.conf",
		"DIR/tree/to-nothing", "DIR/circle", "DIR/astray", "DIR/below/../sub/b.sls",
		"DIR/crooked", "DIR/deep", "DIR/ring-a", "DIR/ring-b", "DIR//more/../odd", "/dev/null"} {
		for _, follow := range []bool{true, false} {
			s := do("file.stats", name).with("follow_symlinks", follow)
			list = append(list, s.except("atime"))
			for _, fun := range []string{"user", "group", "uid", "gid", "mode"} {
				list = append(list, do("file.get_"+fun, name).with("follow_symlinks", follow))
			}
		}
	}
	for _, text := range []any{"two", "last\n", "\n one ", "", " ", nil, int64(4), "One"} {
		list = append(list, do("file.contains", "DIR/lines", text),
			do("file.contains", "DIR/empty", text))
	}
	list = append(list, do("file.stats", "DIR/nosuch").refused(),
		do("file.get_user", "DIR/nosuch"), do("file.contains", "DIR/tree", "x"),
		do("file.contains", "DIR/nosuch", "x"))
	list = append(list, do("file.is_hardlink", "DIR/tree/a"),
		do("file.is_hardlink", "relative").refused())
	for _, expr := range []string{"two", "^two", "two$", `\s$`, "(?i)TWO = \\d", "^last$",
		"^three\r$", "ü", `\bfive\b`, "^$", "(", "*", "nothing", "(?P<n>=)4", `f(?=ive)`, "",
		"^four", `\x6fne`} {
		list = append(list, do("file.contains_regex", "DIR/lines", expr),
			do("file.search", "DIR/lines", expr), do("file.search", "DIR/lines", expr).with("flags",
				int64(0)), do("file.search", "DIR/lines", expr).with("flags", []any{"i",
				"multiline"}), do("file.search", "DIR/lines", expr).with("flags", "dotall",
				"multiline", true))
	}
	for _, p := range []string{"DIR/empty", "DIR/nosuch", "DIR/tree", "DIR/latin", "DIR/binary",
		"DIR/odd", "DIR/tree/to-b", "DIR/tree/to-nothing"} {
		// these differ on unusual content
		list = append(list, do("file.contains_regex", p, "key"),
			do("file.contains_glob", p, "*key*"), do("file.search", p, "key|caf."))
		list = append(list, do("file.search", p, "key").with("ignore_if_missing", true))
	}
	return append(list,
		do("file.contains_regex", "DIR/lines", "^two").with("lchar", "# "),
		do("file.contains_regex", "DIR/lines", "^ive", "\tf"),
		do("file.contains_regex", "DIR/lines", int64(5)),
		do("file.contains_regex", "DIR/empty", "("),
		do("file.contains_glob", "DIR/lines", "one*last"),
		do("file.contains_glob", "DIR/lines", "one"),
		do("file.contains_glob", "DIR/lines", "*t[!x]o*"),
		do("file.contains_glob", "DIR/lines", "*\r*"), do("file.contains_glob", "DIR/lines", ""),
		do("file.contains_glob", "DIR/long", "*end"), do("file.contains_glob", "DIR/long", "*x\n"),
		do("file.contains_glob", "DIR/long", strings.Repeat("?", 100)+"*d"),
		do("file.contains_glob", "DIR/lines", int64(1)),
		do("file.search", "DIR/nosuch", "x").refused(),
		do("file.search", "DIR/binary", "x").refused(),
		do("file.search", "DIR/lines", "x").with("flags", "nosuch").refused(),
		do("file.search", "DIR/lines", "x").with("flags", nil).refused(),
		do("file.search", "DIR/lines", "x").with("flags", 1.5).refused(),
		do("file.search", "DIR/lines", "x").with("flags", m("a", int64(1))),
		do("file.search", "DIR/lines", "x").with("flags", []any{}),
		do("file.search", "DIR/lines", "x").with("flags", "unicode"),
		do("file.search", "DIR/lines", "o n e # three").with("flags", "VERBOSE"),
		do("file.search", "DIR/lines", "five ..$"),
		do("file.search", "DIR/lines", "five .$"), do("file.search", "DIR/lines", "five [ü]+$"),
		do("file.search", "DIR/lines", `five \w`), do("file.search", "DIR/lines", `five \W`),
		do("file.search", "DIR/lines", "FIVE Ü").with("flags", []any{"I"}),
		do("file.search", "DIR/latin", "caf. au"), do("file.search", "DIR/lines", int64(2)),
		do("file.search", "DIR/lines", nil),
	)
}

// except is a step with a key in its result that may differ.
func (s step) except(key string) step {
	s.but = key
	return s
}
