package modules

import (
	"slices"
	"testing"
)

// everydaySteps are the functions that most templates call.
func everydaySteps() []step {
	var list []step
	for _, key := range []string{"os", "roles", "roles:1", "own_map:g", "own_map|g", "nosuch", "nosuch:a",
		""} {
		list = append(list, do("grains.get", key), do("grains.get", key, "x"), do("grains.fetch", key),
			do("grains.get", key, nil, "|"), do("grains.has_value", key), do("grains.equals", key, "db"),
			do("pillar.get", key), do("pillar.get", key, "x"), do("pillar.fetch", key, nil),
			do("pillar.item", key), do("pillar.item", key, "own_pillar").with("default", "x"),
			do("pillar.keys", key), do("pillar.filter_by", m("p", int64(1), "default", int64(2)), key))
	}
	for _, key := range []string{"own_pillar", "own_list", "own_list:0", "master", "master:own_map:a",
		"own_text"} {
		list = append(list, do("pillar.get", key), do("pillar.get", key, m("z", int64(1)), true),
			do("pillar.get", key, []any{int64(1)}).with("merge", true), do("pillar.item", key),
			do("pillar.keys", key), do("pillar.filter_by", m("p*", int64(1)), key))
	}
	for _, p := range []string{"DIR/lines", "DIR/tree", "DIR/tree/to-b", "DIR/tree/to-nothing",
		"DIR/nosuch", "DIR/empty", "DIR/crooked", "DIR/deep", "DIR/ring-a", "relative/x"} {
		for _, fun := range []string{"basename", "dirname", "file_exists", "is_link", "readdir",
			"readlink", "get_hash", "get_sum", "read"} {
			if fun != "readdir" || p != "DIR/tree" { // Salt's is in the order of the disk
				list = append(list, do("file."+fun, p))
			}
		}
		list = append(list, do("file.readlink", p, true), do("file.get_hash", p, "md5"),
			do("hashutil.digest_file", p), do("hashutil.digest_file", p, "sha512"))
	}
	for _, v := range []any{"x", "ü", ""} {
		list = append(list, do("hashutil.sha256_digest", v), do("hashutil.sha512_digest", v),
			do("hashutil.base64_encodestring", v), do("hashutil.github_signature", v, "s", "sha1=a"))
	}
	a, b := m("a", int64(1), "l", []any{int64(1)}, "m", m("x", int64(1))), m("b", int64(2), "l",
		[]any{int64(2)}, "m", m("y", int64(2)))
	list = append(list, do("grains.ls"), do("pillar.items"), do("pillar.ls"),
		do("defaults.deepcopy", a), do("defaults.merge", a, b), do("defaults.merge", a, b, true),
		do("defaults.update", m("d", b), m("n", m("own", int64(1)))),
		do("slsutil.merge", a, b), do("slsutil.merge", a, b, "list"),
		do("slsutil.merge", a, b).with("merge_lists", true), do("slsutil.merge_all", []any{a, b}),
		do("slsutil.update", a, b), do("slsutil.update", a, b, true, true),
		do("slsutil.update", a, b, false), do("environ.has_value", "PATH"),
		do("environ.has_value", "nosuch"), do("environ.has_value", "NOTIFY_SOCKET", "x"),
		do("slsutil.deserialize", "json", `{"a": [1]}`), do("slsutil.deserialize", "yaml", "a: [1]"),
		do("test.echo", "x"), do("test.ping"), do("test.true"), do("test.false"), do("test.version"),
		do("test.arg", "a").with("b", "c"))
	for _, v := range []any{"yes", "no", "True", "on", "", "x", int64(0), nil, true} {
		list = append(list, do("slsutil.boolstr", v), do("slsutil.boolstr", v, "t", "f"))
	}
	for _, tgt := range []string{"web1", "web*", "db1", "os:Debian", "os:Deb*", "own_pillar:p", "w.b1",
		"web1,db1", "G@os:Debian and not db1", "E@web.", "", "10.0.0.0/8"} {
		for _, fun := range []string{"glob", "list", "pcre", "compound", "grain", "grain_pcre", "pillar",
			"pillar_pcre"} {
			list = append(list, do("match."+fun, tgt))
		}
		list = append(list, do("match.filter_by", m(tgt, int64(1))),
			do("match.search_by", m("r", []any{tgt}, "s", []any{"*"})))
	}
	return list
}

// elsewhere are functions without a step, with where they are compared with Salt's, or why not.
var elsewhere = map[string]string{
	"cp.list_master": inTrees, "cp.list_master_dirs": inTrees, "cp.list_states": inTrees,
	"jinja.import_json": inTrees, "jinja.import_yaml": inTrees, "jinja.load_map": inTrees,
	"match.ipcidr": inTrees, "match.nodegroup": inTrees, "mine.get": inTrees,
	"slsutil.dir_exists": inTrees, "slsutil.file_exists": inTrees, "slsutil.findup": inTrees,
	"slsutil.path_exists": inTrees, "slsutil.renderer": inTrees,

	"cp.cache_file": "files lie elsewhere", "cp.is_cached": "files lie elsewhere",
	"cp.envs": "needs a server of files", "environ.items": "environments differ",
	"saltutil.runner": "runners are this master's", "test.get_opts": "options differ",
	"sdb.get_or_set_hash": "drivers that store are Salt's own",
	"slsutil.traverse":    "Salt has none", "sys.list_functions": "lists native functions",
	"sys.list_modules": "lists native functions",
}

const inTrees = "compared by the pillars in salt/pillar/testdata/trees"

// TestFunctionsAreCompared: each function is compared with Salt's.
func TestFunctionsAreCompared(t *testing.T) {
	t.Parallel()
	asked := map[string]bool{}
	for _, s := range slices.Concat(steps(), fileSteps(), plainSteps(), placeSteps(),
		everydaySteps()) {
		asked[s.fun] = true
	}
	for _, name := range New(Deps{}).Names() {
		if _, excused := elsewhere[name]; asked[name] == excused {
			t.Errorf("%s: a step %v, a reason %v", name, asked[name], excused)
		}
	}
}
