package conformance

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/value"
)

// asked is one request of a minion, sent to both masters in the order of the table. ours is our
// reply if it differs on purpose; docs/differences.md has the reasons.
type asked struct {
	name string
	load value.Map
	ours string
}

func dict(pairs ...any) value.Map {
	var m value.Map
	for i := 0; i < len(pairs); i += 2 {
		m = append(m, value.Pair{Key: pairs[i], Value: pairs[i+1]})
	}
	return m
}

// dataConfig replaces the roots of the kit's configuration.
const dataConfig = `file_roots:
  base: [DIR/srv, DIR/srv2]
  dev: [DIR/dev]
  '2024': [DIR/2024]
  __env__: [DIR/any/__env__]
fileserver_followsymlinks: FOLLOW
fileserver_ignoresymlinks: IGNORE
file_ignore_glob: ['*.swp', 'hidden/*']
file_ignore_regex: ['\.bak$']
file_buffer_size: 4096
file_recv: True
file_recv_max_size: 1
fileserver_backend: [roots, minion]
minionfs_mountpoint: salt://pushed
minionfs_blacklist: [data-b]
auto_accept: True
mine_get: {'data-.*': ['test.*', 'own', 'priv'], 'data-z': ['.*']}
peer: {'data-a': ['test.*']}
peer_run: {'data-a': ['test.arg']}
master_tops: {ext_nodes: DIR/nodes.sh, saltclass: {path: DIR/saltclass}}
nodegroups: {ng: 'L@data-a,data-b'}
timeout: 5
minimum_auth_version: 0
`

// dataFiles and dataLinks are the tree.
var (
	dataFiles = map[string]string{
		"srv/top.sls": "base: {}\n", "srv/sub/hello.txt": "hello", "srv/sub/deep/x.txt": "x",
		"srv/both.txt": "first", "srv2/both.txt": "second", "srv2/only2.txt": "2",
		"srv2/sub/more.txt": "more", "srv/with blank.txt": "b", "srv/ünï.txt": "u", "srv/.dot": "d",
		"srv/q?x=1.txt": "q", "srv/a|b": "p", "srv/empty.txt": "", "srv/one": "1",
		"srv/x.swp": "s", "srv/hidden/h.txt": "h", "srv/old.bak": "o", "dev/d.txt": "d",
		"any/feat/f.txt": "f", "2024/y.txt": "y", "outside/secret.txt": "s", "srv/star*.txt": "*",
		"srv/exact": strings.Repeat("x", 4096), "srv/exact1": strings.Repeat("x", 4097),
		"srv/three": strings.Repeat("abc", 4000), "srv/new\nline": "n",
		"saltclass/nodes/data-a.yml": "environment: dev\nclasses: [common]\nstates: ['{{ __grains__.os }}', a.b]\n", "saltclass/classes/common.yml": "states: [ssh]\n",
	}
	dataLinks = map[string]string{
		"srv/in.lnk": "sub/hello.txt", "srv/dir.lnk": "sub", "srv/out.lnk": "../outside/secret.txt",
		"srv/outdir.lnk": "../outside", "srv/dangling": "nosuch", "srv/sub/up.lnk": "../both.txt",
	}
)

// dataTree makes the same tree for each master.
func dataTree(t *testing.T, m *subject) {
	t.Helper()
	for path, text := range dataFiles {
		m.write(t, text, path)
	}
	if err := os.Chmod(m.write(t,
		"#!/bin/sh\necho 'environment: dev'\necho \"classes: {a.b: x, $1: y}\"\n", "nodes.sh"),
		0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"srv/emptydir", "srv/sub/emptytoo"} {
		if err := os.MkdirAll(m.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range dataLinks {
		if err := os.Symlink(to, m.path(link)); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(m.path("srv"), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = os.Chmod(path, 0o640)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func fileQuestions() []asked {
	var out []asked
	for _, env := range []any{"base", "dev", "feat", "nosuch", "__env__", "../x", nil, "2024", int64(2024),
		20.5} {
		for _, cmd := range []string{"_file_list", "_file_list_emptydirs", "_dir_list",
			"_symlink_list"} {
			for _, prefix := range []any{nil, "sub", "/sub/", "nosuch"} {
				load := dict("cmd", cmd, "saltenv", env)
				if env == nil {
					load = dict("cmd", cmd)
				}
				if prefix != nil {
					load = append(load, dict("prefix", prefix)...)
				}
				out = append(out, asked{fmt.Sprint(cmd, " ", env, " ", prefix), load, ""})
			}
		}
	}
	for _, path := range []string{
		"top.sls", "sub/hello.txt", "sub/./hello.txt", "sub//hello.txt", "sub/../top.sls",
		"../outside/secret.txt", "/etc/passwd", "sub", "sub/", "", ".", "..", "nosuch", "both.txt",
		"only2.txt",
		"sub/more.txt", "with blank.txt", "ünï.txt", ".dot", "q?x=1.txt", "|q?x=1.txt", "a|b",
		"empty.txt", "x.swp", "hidden/h.txt", "old.bak", "d.txt", "d.txt?saltenv=dev",
		"f.txt?saltenv=feat",
		"both.txt?index=1", "both.txt?index=0", "star*.txt", "in.lnk", "dir.lnk/hello.txt",
		"out.lnk", "outdir.lnk/secret.txt", "dangling", "sub/up.lnk", "emptydir", "new\nline",
		"dir.lnk",
	} {
		for _, cmd := range []string{"_file_find", "_file_hash", "_file_hash_and_stat"} {
			if cmd != "_file_find" && strings.Contains(path, "index=") {
				continue // Salt keeps hashes by name: it returns one of two
			}
			out = append(out, asked{fmt.Sprintf("%s %q", cmd, path),
				dict("cmd", cmd, "path", path, "saltenv", "base"), ""})
		}
		served := "" // Salt finds and hashes files of another environment, but serves none of them
		if bare, _, ok := strings.Cut(path, "?saltenv="); ok {
			served = fmt.Sprintf("{\"data\": %q, \"dest\": %q}", bare[:1], bare)
		}
		out = append(out, asked{fmt.Sprintf("_serve_file %q", path),
			dict("cmd", "_serve_file", "path", path, "saltenv", "base", "loc", int64(0)), served})
	}
	for _, path := range []string{"empty.txt", "one", "exact", "exact1", "three"} {
		for _, loc := range []int64{0, 1, 4095, 4096, 4097, 8192, 12000, 1 << 40} {
			for _, level := range []int64{0, 1, 9} {
				load := dict("cmd", "_serve_file", "path", path, "saltenv", "base", "loc", loc)
				if level > 0 {
					load = append(load, dict("gzip", level)...)
				}
				out = append(out, asked{fmt.Sprint("_serve_file ", path, " ", loc, " ", level),
					load, ""})
			}
		}
	}
	for _, env := range []any{int64(2024), "2024", 2024.0, true} { // "saltenv=2024" gives a number
		for _, cmd := range []string{"_file_hash", "_file_hash_and_stat", "_serve_file"} {
			out = append(out, asked{fmt.Sprintf("%s in %#v", cmd, env), dict("cmd", cmd, "path", "y.txt",
				"saltenv", env, "loc", int64(0)), ""})
		}
	}
	for _, level := range []any{int64(-1), "", false, int64(10), "x"} {
		out = append(out, asked{fmt.Sprintf("_serve_file with gzip %#v", level),
			dict("cmd", "_serve_file", "path", "three", "saltenv", "base", "loc", int64(0), "gzip",
				level), ""})
	}
	return append(out,
		asked{"_serve_file below 0", dict("cmd", "_serve_file", "path", "one", "saltenv", "base",
			"loc", int64(-1)), ""},
		asked{"_serve_file without loc", dict("cmd", "_serve_file", "path", "one", "saltenv",
			"base"), ""},
		asked{"_serve_file without path", dict("cmd", "_serve_file", "saltenv", "base", "loc",
			int64(0)), ""},
		asked{"_file_find without path", dict("cmd", "_file_find", "saltenv", "base"), ""},
		asked{"_file_find without saltenv", dict("cmd", "_file_find", "path", "one"), ""},
		asked{"_file_hash without saltenv", dict("cmd", "_file_hash", "path", "one"), ""},
		asked{"_file_hash_and_stat without path",
			dict("cmd", "_file_hash_and_stat", "saltenv", "base"), ""},
		asked{"_file_envs", dict("cmd", "_file_envs"), ""},
		asked{"_file_find in an environment of __env__",
			dict("cmd", "_file_find", "path", "f.txt", "saltenv", "feat"), ""},
	)
}

func dataQuestions() []asked {
	acl := func(v, tgt any, kind string) value.Map {
		return dict("__data__", v, "__saltmine_acl__", int64(1), "allow_tgt", tgt,
			"allow_tgt_type", kind)
	}
	event := func(more ...any) value.Map {
		return append(dict("cmd", "_minion_event"),
			dict(more...)...)
	}
	get := func(more ...any) value.Map { return append(dict("cmd", "_mine_get"), dict(more...)...) }
	push := func(path any, loc int64, data string) value.Map {
		return dict("cmd", "_file_recv", "path", path, "loc", loc, "data", []byte(data), "size",
			int64(len(data))+max(loc, 0))
	}
	file := func(cmd string, more ...any) value.Map {
		return append(dict("cmd", cmd, "saltenv", "base"), dict(more...)...)
	}
	pub := func(more ...any) value.Map {
		load := dict("cmd", "minion_pub", "fun", "test.ping", "arg", []any{}, "tgt", "nobody*",
			"ret", "")
		for i := 0; i < len(more); i += 2 {
			load = load.Set(more[i].(string), more[i+1])
		}
		return load
	}
	return []asked{
		{"unknown command", dict("cmd", "_nosuch"), ""},
		{"private command", dict("cmd", "__init__"), ""}, {"run_func", dict("cmd", "run_func"), ""},
		{"_ext_nodes", dict("cmd", "_ext_nodes"), ""},
		{"_master_opts", dict("cmd", "_master_opts"), ""},
		{"_master_opts env_only", dict("cmd", "_master_opts", "env_only", true), ""},
		{"_master_tops", dict("cmd", "_master_tops", "opts",
			dict("id", "data-a", "grains", dict("os", "x"))), ""},
		{"_register_resources", dict("cmd", "_register_resources", "resources", dict(),
			"resource_grains", dict()), ""},
		{"_register_resources without", dict("cmd", "_register_resources"), ""},
		{"event", event("tag", "own/tag", "data", "text", "pretag", nil), ""},
		{"event without data", event("tag", "own/tag"), ""},
		{"events", event("events", []any{dict("tag", "own/a", "data", dict("x", int64(1))),
			dict("tag", "salt/key", "data", dict())}, "pretag", "base"), ""},
		{"mine", dict("cmd", "_mine", "data", dict("test.a", "1", "own", dict("x", []any{int64(1)}),
			"priv", acl("p", "data-b", "glob"), "never", acl("n", "nobody", "glob"), "test.hidden",
			"h", "test.null", acl("n", nil, "glob"), "test.empty", acl("e", "", "glob")), "clear",
			false), ""},
		{"mine without data", dict("cmd", "_mine"), ""},
		{"one function", get("tgt", "*", "fun", "test.a"), ""},
		{"as a list", get("tgt", "*", "fun", []any{"test.a"}), ""},
		{"several", get("tgt", "*", "fun", "test.a,own"), ""},
		{"several with blanks", get("tgt", "*", "fun", "test.a, own"), ""},
		{"several as a list", get("tgt", "*", "fun", []any{"test.a", "own", "test.nosuch"}), ""},
		{"not by mine_get", get("tgt", "*", "fun", "network.ip_addrs"), ""},
		{"some by mine_get", get("tgt", "*", "fun", []any{"cmd.run", "own"}), ""},
		{"for nobody", get("tgt", "*", "fun", []any{"test.null", "test.empty"}), ""},
		{"for others only", get("tgt", "*", "fun", "priv"), ""},
		{"expr_form", get("tgt", "os:Plan9", "fun", "own", "expr_form", "grain"), ""},
		{"grain", get("tgt", "os:Plan*", "fun", "own", "tgt_type", "grain"), ""},
		{"pattern on pillar", get("tgt", "color:*", "fun", "own", "tgt_type", "pillar"), ""},
		{"compound", get("tgt", "data-* and G@os:Plan9", "fun", "own", "tgt_type", "compound"), ""},
		{"list", get("tgt", []any{"data-a"}, "fun", "own", "tgt_type", "list"), ""},
		{"nobody", get("tgt", "x*", "fun", "own"), ""}, {"without fun", get("tgt", "*"), ""},
		{"fun is a number", get("tgt", "*", "fun", int64(5)), ""},
		{"delete", dict("cmd", "_mine_delete", "fun", "own"), ""},
		{"delete what is not there", dict("cmd", "_mine_delete", "fun", "nosuch"), ""},
		{"delete nothing", dict("cmd", "_mine_delete"), ""},
		{"after delete", get("tgt", "*", "fun", []any{"own", "test.a"}), ""},
		// Salt's dies of it
		{"clear", dict("cmd", "_mine", "data", dict("test.b", "2"), "clear", true), "true"},
		{"after clear", get("tgt", "*", "fun", []any{"test.a", "test.b"}), `{"test.b": {"data-a": "2"}}`},
		{"flush", dict("cmd", "_mine_flush"), ""},
		{"after flush", get("tgt", "*", "fun", []any{"test.a", "test.b"}), ""},
		{"push", push([]any{"etc", "x"}, 0, "abc"), ""},
		{"push more", push([]any{"etc", "x"}, 3, "def"), ""},
		{"push text", push("etc/x", 0, "a"), ""}, {"push up", push([]any{"..", "x"}, 0, "a"), ""},
		{"push up later", push([]any{"a", "..", "..", "x"}, 0, "a"), ""},
		{"push absolute", push([]any{"/etc/x"}, 0, "a"), ""},
		{"push before", push([]any{"x"}, -1, "a"), ""},
		{"push too much", push([]any{"x"}, 0, strings.Repeat("x", 1<<20+1)), ""},
		{"push just enough", push([]any{"x"}, 0, strings.Repeat("x", 1<<20)), ""},
		{"push nothing", dict("cmd", "_file_recv"), ""},
		{"push a top file", push([]any{"top.sls"}, 0, "base: {'*': [evil]}"), ""},
		{"push without data", dict("cmd", "_file_recv", "path", []any{"x"}, "loc", int64(0)), ""},
		{"pushed files", file("_file_list"), ""},
		{"pushed files below a prefix", file("_file_list", "prefix", "pushed/data-a/etc"), ""},
		{"folders of pushed files", file("_dir_list"), ""},
		{"a pushed file", file("_serve_file", "path", "pushed/data-a/etc/x", "loc", int64(0)), ""},
		{"its end", file("_serve_file", "path", "pushed/data-a/etc/x", "loc", int64(4)), ""},
		{"behind its end", file("_serve_file", "path", "pushed/data-a/etc/x", "loc", int64(9)), ""},
		{"its hash", file("_file_hash", "path", "pushed/data-a/etc/x"), ""},
		// the cluster has it: there is no file
		{"its hash and stat", file("_file_hash_and_stat", "path", "pushed/data-a/etc/x"),
			fmt.Sprintf("[{%q: %q, %q: \"%x\"}, "+
				"stat(mode 100644, nlink 1, uid 0, gid 0, size 6, of no file)]",
				"hash_type", "sha256", "hsum", sha256.Sum256([]byte("abcdef")))},
		{"a pushed top file", file("_serve_file", "path", "pushed/data-a/top.sls", "loc",
			int64(0)), ""},
		{"a file that was not pushed", file("_file_hash", "path", "pushed/data-a/etc/y"), ""},
		{"a pushed file elsewhere", file("_file_hash", "path", "pushed/data-a/etc/x", "saltenv",
			"dev"), ""},
		{"a minion without pushed files", file("_file_hash", "path", "pushed/data-b/etc/x"), ""},
		{"the whole mount point", file("_file_hash", "path", "pushed"), ""},
		{"publish to nobody", pub(), ""}, {"publish what is not allowed", pub("fun", "cmd.run"),
			""}, {"publish again", pub("fun", "publish.publish"), ""},
		{"publish without arguments", pub().Without("arg"), ""},
		{"publish to an unknown nodegroup", pub("tgt", "nosuch", "tgt_type", "nodegroup"), ""},
		{"publish by patterns on pillar", pub("tgt", "I@color:*", "tgt_type", "compound"), ""},
		{"returns of an unknown job", dict("cmd", "pub_ret", "jid", "20200101000000000000"), ""},
		{"returns of no job", dict("cmd", "pub_ret"), ""},
		{"runner that is not allowed", dict("cmd", "minion_runner", "fun", "manage.up", "arg",
			[]any{}), ""}, {"runner without arguments",
			dict("cmd", "minion_runner", "fun", "test.arg"), ""},
		{"runner that there is not", dict("cmd", "minion_runner", "fun", "test.argue", "arg",
			[]any{}), ""},
		{"return", dict("cmd", "_return", "jid", "20261121000000000001", "fun", "test.ping",
			"return", true, "retcode", int64(0), "success", true), ""},
		{"return without a job", dict("cmd", "_return", "jid", "req", "fun", "test.ping",
			"fun_args", []any{}, "return", true, "retcode", int64(0), "success", true, "schedule",
			"j"), ""},
		// the minion is not a syndic
		{"syndic return", dict("cmd", "_syndic_return", "load",
			[]any{dict("jid", "20261121000000000002", "fun", "test.ping", "return",
				dict("x1", dict("return", true, "retcode", int64(0))), "id", "data-a")}), "false"},
		{"verify_minion", dict("cmd", "verify_minion"), ""},
	}
}

// jids are masked in replies.
var jids = regexp.MustCompile(`\b20\d{18}\b`)

// spoken writes replies in a form that can be compared: types and the order of maps are kept, long
// bytes are a digest, and gzip is opened.
type spoken struct {
	m     *subject
	files map[uint64]spokenFile // by inode
}

// spokenFile is a regular file below a master's folder.
type spokenFile struct {
	path string
	stat *syscall.Stat_t
}

// say writes a reply; the master's folder becomes DIR and job ids JID.
func say(t *testing.T, m *subject, v any) string {
	t.Helper()
	s := spoken{m: m}
	text, err := s.value(v)
	if err != nil {
		t.Fatal(err)
	}
	return jids.ReplaceAllString(strings.ReplaceAll(text, m.Dir, "DIR"), "JID")
}

func (s *spoken) value(v any) (string, error) {
	switch v := v.(type) {
	case value.Map:
		return s.pairs(v)
	case []any:
		if len(v) == 10 {
			if text, err := s.stat(v); err != nil || text != "" {
				return text, err
			}
		}
		var parts []string
		for _, e := range v {
			text, err := s.value(e)
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		}
		return "[" + strings.Join(parts, ", ") + "]", nil
	case []byte:
		if len(v) > 40 {
			return fmt.Sprintf("bytes(%d, sha256 %x)", len(v), sha256.Sum256(v)), nil
		}
		return "b" + strconv.Quote(string(v)), nil
	case string:
		return strconv.Quote(v), nil
	case bool, int64:
		return fmt.Sprint(v), nil
	case nil:
		return "None", nil
	}
	return fmt.Sprintf("%T(%v)", v, v), nil
}

func (s *spoken) pairs(m value.Map) (string, error) {
	packed, _ := m.Get("gzip")
	var parts []string
	for _, p := range m {
		v := p.Value
		if b, ok := v.([]byte); ok && packed != nil && p.Key == "data" {
			r, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				return "", err
			}
			if v, err = io.ReadAll(r); err != nil {
				return "", err
			}
		}
		key, err := s.value(p.Key)
		if err != nil {
			return "", err
		}
		text, err := s.value(v)
		if err != nil {
			return "", err
		}
		parts = append(parts, key+": "+text)
	}
	return "{" + strings.Join(parts, ", ") + "}", nil
}

// stat writes the ten fields of a file's stat (os.stat_result: mode, ino, dev, nlink, uid, gid,
// size, atime, mtime, ctime). Mode, links, owner, group and size are written as they are; the
// others differ from tree to tree, so they are compared with those of the file on disk that has
// this inode. It returns "" for a list that does not hold ten integers.
func (s *spoken) stat(list []any) (string, error) {
	var n [10]int64
	for i, v := range list {
		var ok bool
		if n[i], ok = v.(int64); !ok {
			return "", nil
		}
	}
	text := fmt.Sprintf("stat(mode %o, nlink %d, uid %d, gid %d, size %d", n[0], n[3], n[4], n[5],
		n[6])
	if s.files == nil {
		if err := s.find(); err != nil {
			return "", err
		}
	}
	f, ok := s.files[uint64(n[1])]
	if !ok {
		return text + ", of no file)", nil
	}
	text += ", of " + f.path
	for _, field := range []struct {
		name     string
		got, own int64
	}{
		{"dev", n[2], int64(f.stat.Dev)}, {"mtime", n[8], f.stat.Mtim.Sec},
		{"ctime", n[9], f.stat.Ctim.Sec},
	} {
		if field.got != field.own {
			text += fmt.Sprintf(", %s %d and not the file's %d", field.name, field.got, field.own)
		}
	}
	// Whoever reads the file may move its atime before or after this reply.
	if n[7] < f.stat.Mtim.Sec || n[7] > f.stat.Atim.Sec {
		text += fmt.Sprintf(", atime %d and not up to %d", n[7], f.stat.Atim.Sec)
	}
	return text + ")", nil
}

// find reads the stat of every file below the master's folder.
func (s *spoken) find() error {
	s.files = map[uint64]spokenFile{}
	return filepath.WalkDir(s.m.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // a running master's folder changes
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err == nil {
			s.files[st.Ino] = spokenFile{path, &st}
		}
		return nil
	})
}

// sortSets sorts what Salt makes from a set or in the order of a folder's entries: it differs from
// run to run.
func sortSets(cmd string, v any) {
	switch m, _ := v.(value.Map); cmd {
	case "_file_envs":
		if list, ok := v.([]any); ok {
			slices.SortFunc(list, func(a, b any) int {
				return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
			})
		}
	case "_symlink_list", "_mine_get":
		sortByKey(m)
	case "_master_opts":
		roots, _ := m.Get("file_roots")
		envs, _ := roots.(value.Map)
		sortByKey(envs)
	}
}

func sortByKey(m value.Map) {
	slices.SortFunc(m, func(a, b value.Pair) int {
		return strings.Compare(fmt.Sprint(a.Key), fmt.Sprint(b.Key))
	})
}

// TestMasterData compares our replies with Salt's to requests of minions about files, mine, events,
// pushed files and peers.
func TestMasterData(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct {
		follow, ignore string
		version        int // of the envelopes
	}{{"True", "False", 3}, {"False", "False", 2}, {"True", "True", 1}} {
		name := fmt.Sprintf("follow_%s_ignore_%s_v%d", mode.follow, mode.ignore, mode.version)
		t.Run(name, func(t *testing.T) {
			questions := append(fileQuestions(), dataQuestions()...)
			replies := map[kind][]string{}
			for _, k := range kinds() {
				c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true,
					Programs: programs(t, k)})
				m := &subject{Master: c.Masters[0], kind: k, cfg: "data", base: c.Base}
				var lines []string
				for line := range strings.Lines(m.Config(t)) {
					if !strings.HasPrefix(line, "file_roots:") {
						lines = append(lines, line)
					}
				}
				options := strings.NewReplacer("DIR", m.Dir, "FOLLOW", mode.follow, "IGNORE",
					mode.ignore).Replace(dataConfig)
				if k == ours { // for saltclass
					options += "python_host: " + filepath.Join(e2e.Venvs(t),
						"salt-"+reference, "bin", "python3") + "\n"
				}
				if k == theirs {
					options += "worker_threads: 3\nkeysize: 2048\nenable_fqdns_grains: False\nloop_interval: 1\n"
				}
				m.Configure(t, strings.Join(lines, "")+options)
				dataTree(t, m)
				m.start(t)
				a, b := m.signIn(t, "data-a", mode.version), m.signIn(t, "data-b", mode.version)
				for _, who := range []*client{a, b} {
					m.send(t, who.seal(t,
						who.pillarLoad(t).Set("grains", dict("os", "Plan9", "id", who.ID))))
				}
				for _, q := range questions {
					ask := func() (any, error) {
						load := a.load(t, q.load.String("cmd"))
						for _, p := range q.load {
							load = load.Set(p.Key.(string), p.Value)
						}
						// Every release puts its id and a proof into the load, whatever the
						// envelope's version.
						return a.open(m.send(t,
							a.seal(t, load.Set("id", a.ID).Set("tok", a.tok))), load)
					}
					if q.name == "pushed files" { // we list them once a second
						e2e.Eventually(t, 10*time.Second, "pushed files are listed", func() error {
							v, err := ask()
							if err == nil && !strings.Contains(say(t, m, v), "pushed/") {
								err = fmt.Errorf("the list is %v", v)
							}
							return err
						})
					}
					v, err := ask()
					if err != nil {
						t.Fatalf("%s: %s: %v", k, q.name, err)
					}
					sortSets(q.load.String("cmd"), v)
					replies[k] = append(replies[k], say(t, m, v))
				}
				// Scripts look for pushed files here.
				pushed := filepath.Join(m.Dir, "cache", "minions", "data-a", "files", "etc", "x")
				if b, err := os.ReadFile(pushed); err != nil || string(b) != "abcdef" {
					t.Errorf("%s: pushed file %q, %v", k, b, err)
				}
				m.Stop(t, 10*time.Second)
			}
			var asked []string
			for _, q := range questions {
				asked = append(asked, worded(q.name, q.load))
			}
			salts := saltsText(t, name, fmt.Sprint(dataConfig, dataFiles, dataLinks), asked,
				replies)
			same := 0
			for i, q := range questions {
				got, want := replies[ours][i], salts[i]
				if q.ours != "" {
					if want == q.ours {
						t.Errorf("%s: Salt's is not different any more", q.name)
					}
					want = q.ours
				}
				if got != want {
					t.Errorf("%s:\nours   %.600s\nSalt's %.600s", q.name, got, want)
				} else {
					same++
				}
			}
			t.Logf("%d of %d replies as they should be", same, len(questions))
		})
	}
}
