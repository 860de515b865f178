package modules

import "math"

// timed is a step whose result is a list that ends with the seconds that it took.
func (s step) timed() step {
	s.first = true
	return s
}

// plainSteps need no files: the families match, pillar and test, and the list of programs.
func plainSteps() []step {
	list := []step{
		do("pillar.file_exists", "a.sls"), do("pillar.file_exists", "sub/b.sls"),
		do("pillar.file_exists", "sub"), do("pillar.file_exists", "c.sls"),
		do("pillar.file_exists", "c.sls", "dev"), do("pillar.file_exists", "c.sls", "base"),
		do("pillar.file_exists", "c.sls", "nosuch"), do("pillar.file_exists", "c.sls", ""),
		do("pillar.file_exists", "DIR/still"), do("pillar.file_exists", "../still"),
		do("pillar.file_exists", ""), do("pillar.file_exists", int64(1)),
		do("pillar.file_exists", nil),
		do("match.ifelse"), do("match.ifelse", "a", "b").refused(), do("match.ifelse", "only"),
		do("match.ifelse", "web1", "yes", "no"), do("match.ifelse", "web2", "yes", "no"),
		do("match.ifelse", true, "yes", "no"), do("match.ifelse", false, "yes", "no"),
		do("match.ifelse", nil, "yes", "no"),
		do("match.ifelse", "G@os:Debian and web*", m("a", int64(1)), m("b", int64(2))).with("merge",
			m("c", int64(3))), do("match.ifelse", "web2", "a", "web1", "b", "c"),
		do("match.ifelse", "web1", "a", "web1", "b", "c"), do("match.ifelse", "web1", nil, "c"),
		do("match.ifelse", []any{"web1"}, "a", "b"),
		do("match.ifelse", "os:Debian", "yes", "no").with("tgt_type", "grain"),
		do("match.ifelse", "web1", "yes", "no").with("minion_id", "db1"),
		do("match.ifelse", "web1", "yes", "no").with("nosuch", true),
		do("match.ifelse", "web*", m("l", []any{int64(1)}), nil).with("merge",
			m("l", []any{int64(2)}), "merge_lists", true),
		do("match.ifelse", "web*", "text", nil).with("merge", []any{}),
		do("match.ifelse", "web*", "text", nil).with("merge", m("a", int64(1))),
		do("match.ifelse", "web*", m(), nil).with("merge", "text"),
		do("data.update", "key", "Value"), do("match.data", "key:Value"), do("match.data", "key"),
		do("match.data", nil), do("match.data"),
		do("cmd.which_bin", []any{"nosuch", "sh", "ls"}), do("cmd.which_bin", "sh"),
		do("cmd.which_bin", []any{}), do("cmd.which_bin", nil),
		do("cmd.which_bin", []any{nil, "", "ls"}), do("cmd.which_bin", int64(5)),
		do("cmd.which_bin", m("ls", int64(1))), do("cmd.which_bin", []any{[]any{"sh"}}),
		do("cmd.which_bin", "nosuch"),
		do("cmd.which", "/bin/sh"), do("cmd.which", "ls"), do("cmd.which", "/ls"),
		do("cmd.which", "DIR/still"), do("cmd.which", ""), do("cmd.which", nil),
		do("cmd.which", "/bin"), do("cmd.has_exec", "ls"), do("cmd.has_exec", "nosuch"),
		do("cmd.has_exec", nil), do("cmd.shells"),
		do("test.kwarg"), do("test.kwarg").with("a", int64(1), "b", []any{"c"}),
		do("test.kwarg", "a"), do("test.arg_clean", "a", int64(1)).with("b", nil, "__c", int64(2)),
		do("test.arg_clean"), do("test.retcode"), do("test.retcode", int64(3)),
		do("test.retcode", int64(3), int64(4)),
		do("test.try").with("module", "test.true"),
		do("test.try", "test.echo").with("text", "hello"), do("test.try", "test.echo"),
		do("test.try", "nosuch.function"), do("test.try", nil), do("test.try"),
		do("test.try", "test.echo", true).with("text", "hello"),
		do("test.try", "test.kwarg").with("a", m("b", int64(1))),
		do("test.try", "test.echo", false, "x"),
	}
	for _, v := range []any{int64(0), int64(1), int64(2), int64(10), int64(78), "12", " 7 ", 3.7,
		true, "x", nil, []any{}, int64(-1)} {
		list = append(list, do("test.fib", v).timed())
	}
	list = append(list, do("test.fib", int64(-5)).refused())
	for _, v := range []any{int64(1), int64(2), int64(3), int64(27), "6", 5.5, int64(97),
		int64(837799), "x", nil} {
		list = append(list, do("test.collatz", v).timed())
	}
	for _, kind := range []any{nil, "md5", "sha1", "sha512", "", "nosuch"} { // of the number 0
		list = append(list, do("test.random_hash", int64(0), kind),
			do("test.rand_str", int64(0)).with("hash_type", kind))
	}
	return append(list, do("test.random_hash", int64(-1)), do("test.random_hash", "5"),
		do("test.rand_str", math.Pi))
}
