package conformance

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/e2e"
	"clustermaster/wire"
)

func lookFiles() []asked {
	var out []asked
	add := func(name string, load wire.Map) { out = append(out, asked{name, load, ""}) }
	long := strings.Repeat("x", 300)
	paths := []any{
		"sub\\hello.txt", "sub/hello.txt/", "./sub/hello.txt", "sub/hello.txt\x00", "a\x00b", "\x00", "salt://sub/hello.txt", "salt:/sub/hello.txt", "//sub/hello.txt", "///etc/passwd", "sub/../../srv/one",
		"..%2foutside/secret.txt", "sub/..", "sub/../..", "../srv/one", "../srv2/only2.txt", "DIR/srv/one", "/DIR/srv/one", "|sub/hello.txt", "||x", "|", "?", "one?", "one?saltenv=", "one?saltenv=nosuch", "one?saltenv=base",
		"one?saltenv=base&x=1", "one?x=1&saltenv=dev", "one?saltenv=dev", "?saltenv=dev", "|one?saltenv=dev", "one#x", "one%20", "d.txt?saltenv=dev?saltenv=base", "one?SALTENV=dev", "d.txt?saltenv=dev&saltenv=base", "one?saltenv=base;x",
		"latin-\xff", []byte("latin-\xff"), []byte("one"), []byte("\xff"), long, strings.Repeat("d/", 2000) + "x", strings.Repeat("a", 5000), "fifo", "sock", "devnull", "devzero", "loop", "self/one", "loopdir/x", "noread", "nodir/x",
		"tab\tname", "trailing ", " leading", "quote'\"", "dollar$HOME", "~", "~/one", "~root", "-rf", "*", "st?r", "[a]", "star*.txt", "CON", "ONE", "Sub/hello.txt", "e\u0301", "\u00e9", "é", "emoji😀",
		int64(5), int64(0), nil, true, false, 1.5, []any{"one"}, []any{}, []any{"sub", "hello.txt"}, dict("a", "b"), "", " ", "\n", "sub/hello.txt\n", "hidden", "x.swp/", "sub/x.swp", "./x.swp", "sub/../x.swp", "hidden/../one", "a.swp/b", "dir.lnk/deep/x.txt", "dir.lnk/../one", "outdir.lnk/../srv/one", "in.lnk/x", "one/", "one/x", "one/../one",
		"abs.lnk", "absout.lnk", "chain1", "hard", "empty.txt/", "sub/deep/../hello.txt", "sub/nosuch/../hello.txt", "sub/./././hello.txt", ".hid/x", ".hid", "..one", "...", "a..b", "sub..", "any", "feat/f.txt",
	}
	for _, p := range paths {
		for _, cmd := range []string{"_file_find", "_file_hash", "_file_hash_and_stat"} {
			add(fmt.Sprintf("%s %.60q", cmd, fmt.Sprint(p)), dict("cmd", cmd, "path", p, "saltenv", "base"))
		}
		add(fmt.Sprintf("_serve_file %.60q %T", fmt.Sprint(p), p), dict("cmd", "_serve_file", "path", p, "saltenv", "base", "loc", int64(0)))
	}
	for _, env := range []any{"", " ", "BASE", "base ", "dev\x00", int64(5), nil, true, 1.5, []any{"base"}, []any{}, dict("base", "x"), []byte("base"), []byte("dev"), "feat/../feat", "../any/feat", ".", "..", "/", "feat/", "feat/sub", "__env__/x", "*", "a\nb", strings.Repeat("e", 300)} {
		for _, cmd := range []string{"_file_find", "_file_hash", "_serve_file"} {
			for _, path := range []string{"one", "f.txt", "x/f.txt", "feat/f.txt"} {
				add(fmt.Sprintf("%s %s env %.40q %T", cmd, path, fmt.Sprint(env), env), dict("cmd", cmd, "path", path, "saltenv", env, "loc", int64(0)))
			}
		}
		for _, cmd := range []string{"_file_list", "_dir_list", "_symlink_list", "_file_list_emptydirs"} {
			add(fmt.Sprintf("%s env %.40q %T", cmd, fmt.Sprint(env), env), dict("cmd", cmd, "saltenv", env))
		}
	}
	for _, loc := range []any{"0", "1", "x", "", nil, true, false, 1.0, 1.5, int64(-1), int64(-4096), int64(1 << 62), uint64(1 << 63), []byte("1"), []any{int64(1)}, dict()} {
		for _, gzip := range []any{nil, int64(1)} {
			load := dict("cmd", "_serve_file", "path", "three", "saltenv", "base", "loc", loc)
			if gzip != nil {
				load = append(load, dict("gzip", gzip)...)
			}
			add(fmt.Sprintf("_serve_file loc %v %T gzip %v", loc, loc, gzip), load)
		}
	}
	for _, gzip := range []any{"5", "x", "", nil, true, false, 1.0, 5.5, int64(-1), int64(-2), int64(10), int64(100), []any{}, []byte("5"), dict()} {
		for _, path := range []string{"three", "empty.txt", "sub", "nosuch", "one"} {
			add(fmt.Sprintf("_serve_file %s gzip %v %T", path, gzip, gzip), dict("cmd", "_serve_file", "path", path, "saltenv", "base", "loc", int64(0), "gzip", gzip))
		}
	}
	for _, prefix := range []any{"sub/deep", "su", "sub/", "/", "//", ".", "./sub", "../srv/sub", "..", "sub/..", "", " ", "*", "sub/h*", "SUB", "hidden", "x.swp", "dir.lnk", "dir.lnk/deep", "outdir.lnk", "emptydir", int64(5), nil, true, []any{"sub"}, []byte("sub"), "sub\x00", "ünï", "with blank", "new\nline", "/sub", "sub/hello.txt", ".hid"} {
		for _, cmd := range []string{"_file_list", "_file_list_emptydirs", "_dir_list", "_symlink_list"} {
			add(fmt.Sprintf("%s prefix %q %T", cmd, fmt.Sprint(prefix), prefix), dict("cmd", cmd, "saltenv", "base", "prefix", prefix))
		}
	}
	for _, cmd := range []string{"_file_list", "_file_find", "_file_hash", "_serve_file", "_file_hash_and_stat"} {
		add(cmd+" env (old name)", dict("cmd", cmd, "env", "dev", "path", "d.txt", "loc", int64(0)))
		add(cmd+" env and saltenv", dict("cmd", cmd, "env", "dev", "saltenv", "base", "path", "one", "loc", int64(0)))
		add(cmd+" more", dict("cmd", cmd, "saltenv", "base", "path", "one", "loc", int64(0), "fsbackend", "nosuch", "hash_type", "md5", "backend", "git"))
		add(cmd+" fsbackend roots", dict("cmd", cmd, "saltenv", "base", "path", "one", "loc", int64(0), "fsbackend", "roots"))
		add(cmd+" fsbackend -roots", dict("cmd", cmd, "saltenv", "base", "path", "one", "loc", int64(0), "fsbackend", "-roots"))
		add(cmd+" fsbackend list", dict("cmd", cmd, "saltenv", "base", "path", "one", "loc", int64(0), "fsbackend", []any{"roots", "git"}))
	}
	add("_file_envs more", dict("cmd", "_file_envs", "fsbackend", "nosuch", "saltenv", "x"))
	return out
}

func lookData() []asked {
	var out []asked
	add := func(name string, load wire.Map) { out = append(out, asked{name, load, ""}) }
	acl := func(v, tgt any, kind any) wire.Map {
		return dict("__data__", v, "__saltmine_acl__", int64(1), "allow_tgt", tgt, "allow_tgt_type", kind)
	}
	mine := func(name string, data any, more ...any) {
		add("mine "+name, append(dict("cmd", "_mine", "data", data), dict(more...)...))
	}
	get := func(more ...any) {
		add("get "+fmt.Sprint(more...), append(dict("cmd", "_mine_get"), dict(more...)...))
	}
	mine("first", dict("test.a", "1", "own", dict("x", int64(1)), "priv", acl("p", "data-a", "glob"), "privlist", acl("pl", []any{"data-a", "x"}, "list"), "privg", acl("pg", "os:Plan9", "grain"), "privc", acl("pc", "G@os:Plan9 and data-*", "compound"), "privn", acl("pn", "ng", "nodegroup"),
		"priv6", acl("p6", "data-[a", "pcre"), "privre", acl("pre", "data-(a|c)", "pcre"), "privnone", acl("p0", nil, nil), "privempty", acl("pe", "", "glob"), "privbad", acl("pb", "*", "nosuch"), "privip", acl("pip", "10.0.0.0/8", "ipcidr"), "privpil", acl("pp", "color:*", "pillar"), "privpe", acl("ppe", "color:blue", "pillar_exact"), "privlisttxt", acl("plt", "data-a,data-b", "list"), "privint", acl("pint", int64(5), "glob"),
		"bareacl", dict("__data__", "b", "__saltmine_acl__", int64(1)), "notacl", dict("__data__", "b"), "fakeacl", dict("__saltmine_acl__", int64(1), "x", "y"), "zeroacl", dict("__data__", "z", "__saltmine_acl__", int64(0), "allow_tgt", "nobody"), "acl2", dict("__data__", "z2", "__saltmine_acl__", int64(2), "allow_tgt", "nobody"), "test.none", nil, "test.empty", "", "test.zero", int64(0), "test.list", []any{}, "test.ünï", "ü"))
	for _, fun := range []any{"priv", "privlist", "privg", "privc", "privn", "priv6", "privre", "privnone", "privempty", "privbad", "privip", "privpil", "privpe", "privlisttxt", "privint", "bareacl", "notacl", "fakeacl", "zeroacl", "acl2", "test.none", "test.empty", "test.zero", "test.list", "test.ünï", "", ",", "test.a,", " test.a", "test.a,,own", "test.a,test.a", []any{}, []any{"test.a", "test.a"}, []any{"test.a,own"}, []any{int64(5)}, []any{nil}, nil, true, dict("test.a", int64(1)), []byte("test.a"), "test.*", "nosuch"} {
		get("tgt", "*", "fun", fun)
	}
	for _, k := range []any{"glob", "pcre", "list", "grain", "grain_pcre", "pillar", "pillar_pcre", "pillar_exact", "ipcidr", "compound", "nodegroup", "range", "nosuch", "", nil, int64(5), true, "compound_pillar_exact", "data", "GLOB"} {
		for _, tgt := range []any{"*", "data-a", "data-a,data-b", "os:Plan9", "os:P*", "10.0.0.0/8", "ng", "N@ng", "data-a and not data-b", "", nil, int64(5), []any{"data-a", "data-b"}, []any{}, []any{int64(5)}, dict("a", "b"), []byte("*"), "(", "not data-a", "roles:x", "color:blue"} {
			get("tgt", tgt, "fun", "own", "tgt_type", k)
		}
	}
	get("tgt", "*", "fun", "own", "expr_form", "list", "tgt_type", "glob")
	get("tgt", "*", "fun", "own", "expr_form", nil)
	get("fun", "own")
	get()
	mine("list", []any{"a"})
	mine("text", "abc")
	mine("nil", nil)
	mine("int", int64(5))
	mine("empty", dict())
	get("tgt", "*", "fun", "test.a")
	mine("odd keys", wire.Map{{Key: int64(5), Value: "five"}, {Key: nil, Value: "none"}, {Key: true, Value: "t"}})
	get("tgt", "*", "fun", []any{"test.a", "5"})
	mine("clear false text", dict("test.c", "c"), "clear", "")
	mine("clear 0", dict("test.c", "c"), "clear", int64(0))
	for _, fun := range []any{"test.a", "nosuch", "", nil, int64(5), []any{"own"}, dict(), true} {
		add(fmt.Sprintf("delete %v %T", fun, fun), dict("cmd", "_mine_delete", "fun", fun))
		get("tgt", "*", "fun", []any{"test.a", "own"})
	}
	add("flush with more", dict("cmd", "_mine_flush", "x", "y"))
	get("tgt", "*", "fun", []any{"test.a", "own"})
	push := func(path any, loc any, data any, more ...any) {
		add(fmt.Sprintf("push %.80q %v %T %T", fmt.Sprint(path), loc, loc, data), append(dict("cmd", "_file_recv", "path", path, "loc", loc, "data", data, "size", int64(3)), dict(more...)...))
	}
	for _, p := range []any{[]any{"a"}, []any{}, []any{""}, []any{"", "x"}, []any{"x", ""}, []any{"/"}, []any{"."}, []any{".."}, []any{"a", "..", "b"}, []any{"a", "..", "..", "b"}, []any{"a/../../b"}, []any{"a/b"}, []any{"a\\b"}, []any{"a\x00b"}, []any{"dir"}, []any{"dir", "x"}, []any{"a", "below"}, []any{int64(5)}, []any{nil}, []any{[]byte("bin")}, []any{[]byte("\xff")}, []any{strings.Repeat("x", 256)}, []any{strings.Repeat("x/", 3000)}, []any{"~", "x"}, []any{"ünï"}, []any{"new\nline"}, "text", nil, int64(5), dict(), []any{[]any{"a"}}, []any{"a", nil}, []any{" "}, []any{"a", "/", "b"}, []any{"a", "/etc"}} {
		push(p, int64(0), []byte("abc"))
	}
	for _, l := range []any{int64(3), int64(6), int64(100), int64(-1), "0", "3", nil, true, false, 1.5, 0.0, int64(1 << 40), uint64(1 << 63), []any{}} {
		push([]any{"loc"}, l, []byte("abc"))
	}
	for _, d := range []any{"text", "", nil, int64(5), []any{"a"}, dict(), []byte{}, true, 1.5} {
		push([]any{"data"}, int64(0), d)
	}
	push([]any{"size"}, int64(0), []byte("abc"), "size", int64(0))
	push([]any{"size"}, int64(0), []byte("abc"), "size", "x")
	push([]any{"size"}, int64(0), []byte("abc"), "size", int64(-1))
	pub := func(more ...any) {
		load := dict("cmd", "minion_pub", "fun", "test.ping", "arg", []any{}, "tgt", "nobody*", "ret", "")
		for i := 0; i < len(more); i += 2 {
			load = load.Set(more[i].(string), more[i+1])
		}
		add("pub "+fmt.Sprint(more...), load)
	}
	for _, tt := range []any{"glob", "pcre", "list", "grain", "grain_pcre", "pillar", "pillar_pcre", "pillar_exact", "ipcidr", "compound", "nodegroup", "range", "nosuch", "", nil, int64(5)} {
		for _, tgt := range []any{"*", "data-a", "data-a,data-b", "os:Plan9", "ng", "", nil, int64(5), []any{"data-a"}, []any{}, "(", "data-a and", "10.0.0.0/8", "color:blue"} {
			pub("tgt", tgt, "tgt_type", tt)
		}
	}
	for _, fun := range []any{"test.ping,test.version", "test.ping,cmd.run", "test.ping,publish.publish", "", nil, int64(5), []any{"test.ping"}, "test.", "xtest.ping", "test.ping ", "Test.ping", "test.ping\ncmd.run", "publish.full_data", "test", true} {
		pub("fun", fun)
		pub("fun", fun, "arg", []any{"a b", "c"})
	}
	for _, arg := range []any{nil, "text", int64(5), dict("a", "b"), []any{nil}, []any{dict("__kwarg__", true, "a", int64(1))}} {
		pub("arg", arg)
		pub("arg", arg, "fun", "test.ping,test.version")
	}
	pub("ret", nil)
	pub("tmo", "x")
	pub("tmo", int64(-1))
	pub("timeout", "x", "form", "full")
	pub("form", "full")
	pub("cmd", "minion_publish")
	pub("cmd", "minion_publish", "timeout", "x")
	pub("cmd", "minion_publish", "fun", "cmd.run")
	for _, j := range []any{"20200101000000000000", "", nil, int64(5), "../../etc/passwd", "a/b", "\x00", []any{"x"}, "req", "nocache"} {
		add(fmt.Sprintf("pub_ret %v %T", j, j), dict("cmd", "pub_ret", "jid", j))
	}
	run := func(fun any, arg any, more ...any) {
		add(fmt.Sprintf("runner %v %v %v", fun, arg, more), append(dict("cmd", "minion_runner", "fun", fun, "arg", arg), dict(more...)...))
	}
	run("test.arg", []any{})
	run("test.arg", []any{"a", int64(5), "b=c"})
	run("test.arg", []any{"a", dict("__kwarg__", true, "k", "v")})
	run("test.arg", []any{"a=1", "x=[1, 2]"}, "no_parse", []any{"a"})
	run("test.arg", "text")
	run("test.arg", nil)
	run("test.arg", dict("a", "b"))
	run("test.arg", []any{}, "kwarg", dict("q", "r"))
	run("test.argx", []any{})
	run("test.arg ", []any{})
	run("", []any{})
	run(nil, []any{})
	run(int64(5), []any{})
	run([]any{"test.arg"}, []any{})
	run("test.arg,manage.up", []any{})
	run("manage.up", []any{})
	for _, o := range []wire.Map{dict("cmd", "_master_opts", "env_only", "yes"), dict("cmd", "_master_opts", "env_only", int64(0)), dict("cmd", "_master_opts", "env_only", nil), dict("cmd", "_master_tops"), dict("cmd", "_master_tops", "opts", nil), dict("cmd", "_master_tops", "opts", dict()), dict("cmd", "_master_tops", "opts", dict("id", "data-b")), dict("cmd", "_master_tops", "opts", dict("id", int64(5))), dict("cmd", "_master_tops", "opts", dict("id", "../x")), dict("cmd", "_master_tops", "opts", "text"),
		dict("cmd", ""), dict("cmd", nil), dict("cmd", int64(5)), dict("cmd", []any{"_file_envs"}), dict("cmd", "_file_envs "), dict("cmd", "file_envs"), dict("cmd", "__class__"), dict("cmd", "opts"), dict("cmd", "_minion_event", "tag", int64(5), "data", dict()), dict("cmd", "_minion_event", "tag", nil, "data", nil), dict("cmd", "_minion_event", "events", "text"), dict("cmd", "_minion_event", "events", nil), dict("cmd", "_minion_event", "events", []any{"x", int64(5), nil}), dict("cmd", "_minion_event", "events", []any{dict("tag", nil)}), dict("cmd", "_minion_event", "events", []any{dict("data", "x")}), dict("cmd", "_minion_event", "events", dict("tag", "x")),
		dict("cmd", "_return"), dict("cmd", "_return", "jid", int64(5), "return", true), dict("cmd", "_return", "jid", "x/../y", "return", true, "fun", "test.ping"), dict("cmd", "_return", "jid", nil, "return", true), dict("cmd", "_return", "jid", "20261121000000000003", "return", nil, "fun", nil), dict("cmd", "_return", "jid", "20261121000000000004", "return", true, "fun", []any{"a", "b"}, "retcode", dict("a", int64(0))), dict("cmd", "_return", "jid", "20261121000000000005", "return", "not a map", "fun", "state.sls", "retcode", int64(2)), dict("cmd", "_return", "jid", "20261121000000000006", "return", dict("x", "notmap"), "fun", "state.highstate", "retcode", int64(2)), dict("cmd", "_return", "jid", "", "return", true),
		dict("cmd", "_syndic_return"), dict("cmd", "_syndic_return", "load", nil), dict("cmd", "_syndic_return", "load", "x"), dict("cmd", "_syndic_return", "load", []any{"x"}), dict("cmd", "_syndic_return", "load", []any{dict("return", "x", "jid", "20261121000000000007", "id", "data-a")}), dict("cmd", "_syndic_return", "load", []any{dict("return", dict("m", "x"), "jid", "20261121000000000008", "id", "data-a")}),
		dict("cmd", "_register_resources", "resources", "x", "resource_grains", "y"), dict("cmd", "_register_resources", "resources", dict("t", []any{"a"}), "resource_grains", dict("t:a", dict("x", int64(1)))), dict("cmd", "_register_resources", "resources", nil, "resource_grains", nil),
		dict("cmd", "verify_minion", "token", "x"), dict("cmd", "_ext_nodes", "opts", dict("id", "data-a"))} {
		add(fmt.Sprint(o), o)
	}
	return out
}

func TestLook(t *testing.T) {
	what := os.Getenv("LOOK")
	if what == "" {
		t.Skip()
	}
	questions := lookFiles()
	if what == "data" {
		questions = lookData()
	}
	replies := map[kind][]string{}
	for _, k := range kinds() {
		c := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 1, Plain: true, Programs: programs(t, k)})
		m := &subject{Master: c.Masters[0], kind: k, cfg: "data", base: c.Base}
		var lines []string
		for line := range strings.Lines(m.Config(t)) {
			if !strings.HasPrefix(line, "file_roots:") {
				lines = append(lines, line)
			}
		}
		options := strings.NewReplacer("DIR", m.Dir, "FOLLOW", "True", "IGNORE", "False").Replace(dataConfig)
		if k == theirs {
			options += "worker_threads: 3\nkeysize: 2048\nenable_fqdns_grains: False\nloop_interval: 1\n"
		}
		m.Configure(t, strings.Join(lines, "")+options)
		dataTree(t, m)
		for _, n := range []string{"latin-\xff", "tab\tname", "trailing ", " leading", "quote'\"", "dollar$HOME", "-rf", "é", "emoji😀", "a..b", "..one", ".hid/x", "sub/x.swp", "a.swp/b", "chain3"} {
			m.write(t, "odd "+n, "srv/"+n)
		}
		_ = syscall.Mkfifo(m.path("srv/fifo"), 0o644)
		if l, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.path("srv/sock"), Net: "unix"}); err == nil {
			defer l.Close()
		} else {
			t.Log(err)
		}
		for a, b := range map[string]string{"srv/devnull": "/dev/null", "srv/devzero": "/dev/zero", "srv/loop": "loop", "srv/abs.lnk": m.path("srv/one"), "srv/absout.lnk": "/etc/hostname", "srv/chain1": "chain2", "srv/chain2": "chain3", "srv/sub/latin-\xfe.lnk": "x"} {
			if err := os.Symlink(b, m.path(a)); err != nil {
				t.Fatal(err)
			}
		}
		_ = os.Link(m.path("srv/one"), m.path("srv/hard"))
		m.start(t)
		a, b := m.signIn(t, "data-a", 3), m.signIn(t, "data-b", 3)
		for _, who := range []*client{a, b} {
			m.send(t, who.seal(t, who.pillarLoad(t).Set("grains", dict("os", "Plan9", "id", who.ID, "ipv4", []any{"10.0.0.1"}))))
		}
		for _, q := range questions {
			load := a.load(t, q.load.String("cmd"))
			for _, p := range q.load {
				if s, ok := p.Value.(string); ok {
					p.Value = strings.ReplaceAll(s, "DIR", m.Dir)
				}
				load = load.Set(p.Key.(string), p.Value)
			}
			began := time.Now()
			v, err := a.open(m.send(t, a.seal(t, load.Set("id", a.ID).Set("tok", a.tok))), load)
			if d := time.Since(began); d > 2*time.Second {
				t.Logf("SLOW %v %s %v", k, q.name, d)
			}
			if err != nil {
				t.Logf("ERR %s: %s: %v", k, q.name, err)
				replies[k] = append(replies[k], "ERR "+err.Error())
				continue
			}
			if list, ok := v.([]any); ok && strings.HasPrefix(q.name, "_file_envs") {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			replies[k] = append(replies[k], fmt.Sprintf("%T ", v)+say(t, m, v))
		}
		m.Stop(t, 10*time.Second)
	}
	n := 0
	for i, q := range questions {
		if got, want := replies[ours][i], replies[theirs][i]; got != want {
			n++
			fmt.Printf("== %.200s\n   OURS %.300s\n   SALT %.300s\n", q.name, got, want)
		}
	}
	fmt.Println(len(questions), "questions", n, "differ")
}
