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
		"root/etc/passwd": "root:x:0:0:Root,Room 1,2,3,4,5:/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/zsh\n", "root/etc/group": "root:x:0:\nshort\nme:x:1000:me,you\n",
		"pillar/a.sls": "", "more/sub/b.sls": "", "dev/c.sls": "",
		"bin/timedatectl": "#!/bin/sh\nprintf '      Local time: Sun 2026-11-22 05:00:00 UTC\\n       Time zone: Europe/Berlin (CET, +0100)\\n'\n",
		"bad/etc/passwd":  "root:x:zero:0::/:/\n", "bad/etc/group": "root:x:zero:\n",
	}
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755),
			os.WriteFile(p, []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Chmod(at("bin/timedatectl"), 0o755),
		os.Chmod(at("tree/b.conf"), 0o4755), os.Link(at("tree/a"),
			at("tree/sub/again")), os.Symlink("sub", at("tree/to-sub")),
		os.Symlink("nowhere", at("tree/to-nothing")), os.Symlink("b.conf",
			at("tree/to-b")), syscall.Mkfifo(at("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func fileSteps() []step {
	list := []step{
		do("slsutil.banner"), do("slsutil.banner", int64(20)),
		do("slsutil.banner", int64(4)).refused(), do("slsutil.banner", int64(40)),
		do("slsutil.banner").with("newline", true, "title", "A title", "text", ""),
		do("slsutil.banner", int64(30), "//", "*", "<<", ">>"),
		do("slsutil.banner", int64(50)).with("commentchar", ";; ", "borderchar", "=-", "title",
			"well-known semi-automatic co-o-p -- and--so--on ---- a-b-c 2-3 --flag ü-ö", "text",
			"tab\tbed\nline\x0bvt  two   spaces "),
		do("slsutil.banner", int64(24)).with("text", "unbreakable-"+strings.Repeat("long", 20)+
			"-end "+strings.Repeat("-", 40)+" x"),
		do("slsutil.banner", int64(6)).with("text", "a b c"), do("slsutil.banner", int64(5)),
		do("slsutil.banner", int64(10)).with("commentchar", ""),
		do("slsutil.banner").with("borderchar", ""), do("slsutil.banner").with("title", int64(5)),
		do("slsutil.banner", "72"), do("slsutil.banner").with("text", []any{"a"}),
		do("slsutil.banner", int64(33)).with("commentchar", " # "),
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
	list = append(list,
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
	for _, v := range []any{"root", "nobody", "nosuch", int64(0), int64(65534), int64(4242424),
		int64(-1), "0", "65534", "", nil, []any{"root"}, 0.5, "daemon", "a b", "x,y"} {
		list = append(list, do("file.uid_to_user", v), do("file.user_to_uid", v),
			do("file.gid_to_group", v), do("file.group_to_gid", v), do("user.info",
				v), do("group.info", v), do("user.list_groups", v))
	}
	return append(list,
		do("user.getent", true), do("user.list_users"), do("group.getent", true),
		do("user.primary_group", "root"), do("user.primary_group", "nobody"),
		do("user.primary_group", "nosuch-user"),
		do("user.info", "root").with("root", "DIR/root"), do("user.info", "me", "DIR/root"),
		do("user.info", "nosuch", "DIR/root"), do("user.info", "root", "DIR/nosuch"),
		do("user.info", "root", "DIR/bad"), do("user.getent", true, "DIR/root"),
		do("user.getent", true, "DIR/bad"), do("user.list_users", "DIR/root"),
		do("user.list_users", "DIR/nosuch"), do("group.info", "me", "DIR/root"),
		do("group.info", "short", "DIR/root"), do("group.info", "root", "DIR/bad"),
		do("group.getent", true, "DIR/root"), do("group.getent", true, "DIR/bad"),
		do("group.info", "root", "DIR/nosuch"), do("user.info", "root", ""),
	)
}

// except is a step with a key in its result that may differ.
func (s step) except(key string) step {
	s.but = key
	return s
}
