package differential

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
)

// grower makes a template of real constructs; every choice comes from the input's bytes.
type grower struct {
	*rand.Rand
	b     strings.Builder
	depth int
	names []string // variables in scope
}

// grow makes one template of an input. The whole input decides every choice: nothing in Go would
// lead the fuzzer from one template to the next.
func grow(choices []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(choices)
	g := &grower{Rand: rand.New(rand.NewPCG(h.Sum64(), 1))}
	for range 1 + g.IntN(2) {
		g.statement()
	}
	return g.b.String()
}

func (g *grower) one(list ...string) string { return list[g.IntN(len(list))] }

func (g *grower) chance(n int) bool { return g.IntN(n) == 0 }

var texts = []string{"''", "'a'", "'abc'", "'Hello World'", "'10.0.0.0/24'", "'192.168.0.1'", "'fe80::1/64'",
	"'2001:db8::1'",
	"'a:b:c'", "'x_y_z'", "'camelCaseText'", "'<b>&\"'", "'1.5'", "'0x1F'", "'yes'", "'true'", "'None'",
	"'naïve ß'", "'a\\nb\\n'",
	"'  pad '", "'a,b,,c'", "'{\"a\": [1, null]}'", "'a: [1, {b: c}]'", "'2002-12-25'", "'1040814000'",
	"'00:11:22:33:44:55'",
	"'deadbeef'", "'12MB'", "'http://example.org/?a=b c'", "'%s-%d'", "'YWJj'", "'not base64!'", "'- x'",
	"'ΟΔΟΣ'", "'a\\tb'", "'😀'",
	"'%Y/%m/%d'", "'/a/b/../c'", "'web1.example.org'", "\"it's\"", "'-0'", "'1e3'", "'007'", "'a.b'", "'*'", "'[ab]'"}

var (
	numbers = []string{"0", "1", "2", "-1", "3", "10", "255", "1024", "7", "12"}
	odd     = []string{"1.5", "-0.5", "2.0", "1e3", "100000000000000000000", "0.1"}
)

// rules are filters, tests, methods and operators of Jinja, Salt and Python: the kind of value that
// they take, the kind that they make, and how they are written behind it. Kinds and arguments: S a
// text, N a number, L a list, D a map, B a truth value, P a list of maps, A anything.
var rules = parseRules(`
S S |capitalize; |center(N); |escape; |forceescape; |indent; |indent(N); |indent(N, true);
 |indent(N, blank=true); |lower; |replace(S, S); |replace(S, S, N); |reverse; |safe; |string; |striptags;
 |title; |trim; |trim(S); |truncate(N); |truncate(N, true); |truncate(N, true, S); |truncate(N, false, S, 1);
 |upper; |urlencode; |urlize; |urlize(10); |wordwrap(7); |wordwrap(3, false); |wordwrap(5, true, S); |json;
 |tojson; |yaml; |yaml(false); |yaml_dquote; |yaml_squote; |yaml_encode; |python; |pprint; |base64_encode; |md5;
 |sha1; |sha256; |sha512; |hmac_compute(S); |uuid; |quote; |regex_escape; |regex_replace(S, S);
 |regex_replace('([a-z])', '<\\1>'); |regex_replace('A', S, ignorecase=true); |to_snake_case; |to_camelcase;
 |to_camelcase(uppercamel=true); |path_join(S); |path_join(S, S); |ipwrap; |method_call('upper');
 |method_call('replace', S, S); .upper(); .strip(); .replace(S, S); .title(); .zfill(N); [1:]; [::-1]; .lower();
 .rstrip(S); .casefold(); .swapcase(); .join(L); .ljust(N, '*'); |load_yaml|yaml; |load_json|json;
 .expandtabs(N); |list|join('|'); |strftime('%Y'); |date_format(S); |base64_decode; |load_text; |e;
 |sequence|json; |skip; |xml; |first; |last
S N |length; |int; |int(N); |int(N, 16); |float; |wordcount; .count(S); .find(S); |str_to_num; |to_num;
 |human_to_bytes; |human_to_bytes('K'); |human_to_bytes(handle_metric=true); |count; |network_size; .rfind(S)
S L |list; |sort; |unique|sort; .split(S); .split(','); .splitlines(); |batch(N)|list; |slice(N)|list;
 |regex_match('^(.*)b(.*)$')|list; |regex_search('(.)(.)')|list; |regex_search(S)|json|list; .partition(S)|list;
 |map('upper')|list; |select('in', S)|list; |ip_host|list; |ipaddr|list; |ipv4|list; |ipv6|list; |sequence;
 |network_hosts; |combinations(2)|list; |zip(S)|list; .rsplit(S, 1)
S B |contains_whitespace; |is_hex; |is_ip; |is_ipv4; |is_ipv6; |to_bool; |substring_in_list(L);
 |check_whitelist_blacklist(L); |check_whitelist_blacklist(blacklist=L); |is_iter; |is_list; |hmac(S, S);
 is string; is lower; is upper; is match(S); is match('[a-z]+'); is match('A', ignorecase=true); .startswith(S);
 .isdigit(); == S; < S; in S; in L; is defined; is none; is iterable; is sequence; is escaped; not in S;
 |is_ip(options='private'); is eq(S)
N N |abs; |round; |round(N); |round(1, 'floor'); |round(0, 'ceil'); + N; - N; * N; // 3; % 7; / 2; |int; |float;
 |to_num; ** 2
N S |string; |filesizeformat; |filesizeformat(true); |json; |yaml; |python; |pprint; |strftime('%Y-%m-%d');
 |date_format; ~ S; |tojson; |yaml_encode
N B is odd; is even; is divisibleby(3); is number; is integer; is float; > N; == N; |to_bool; is boolean;
 |exactly_n_true; in L; <= N; is sameas(N); is ge(N)
N L |sequence; |batch(2)|list
L L |list; |sort; |sort(reverse=true); |sort(case_sensitive=true); |unique; |reverse|list; |batch(2)|list;
 |batch(2, S)|list; |slice(2)|list; |slice(3, A)|list; |map('string')|list; |map('upper')|list;
 |map('int')|list; |map('default', S)|list; |map('length')|list; |reject('none')|list; |select('string')|list;
 |select('number')|list; |select|list; |reject('eq', A)|list; |select('in', L)|list; |flatten; |flatten(1);
 |flatten(levels=0); |flatten(preserve_nulls=true); + L; [1:]; [::-1]; |zip(L)|list; |zip_longest(L)|list;
 |product(L)|list; |combinations(2)|list; |permutations(2)|list; |compress(L)|list; |union(L)|sort;
 |intersect(L)|sort; |difference(L)|sort; |symmetric_difference(L)|sort; |sorted_ignorecase; |json_encode_list;
 |json_decode_list; |ipaddr; |ipv4; |ipv6; |ip_host; |filter_by_networks(['10.0.0.0/8', '::/0']); |sequence;
 |skip; |map('to_bool')|list; |json_query('[0:2]'); |json_query('[*]'); |map('regex_replace', 'a', S)|list;
 |map('is_ip')|list; |from_entries|list; * 2; |map('json')|list
L S |join; |join(S); |first|string; |last|string; |string; |json; |json(indent=N); |json(sort_keys=false);
 |tojson; |tojson(indent=N); |yaml; |yaml(false); |python; |pprint; |yaml_encode|string; |xml;
 |to_entries|string; |random_shuffle(7)|json; |dict_to_sls_yaml_params; |max|string; |min|string; |ipwrap|json;
 |mysql_to_dict('a')|json; |path_join
L N |length; |sum; |sum(start=N); |max; |min; |avg; |count; .index(A); .count(A); [0]; [-1]
L B is iterable; is sequence; is mapping; |is_list; |is_iter; |exactly_one_true; |exactly_n_true(N); == L;
 is list; is defined; |to_bool; < L
L D |compare_lists(L); |groupby(0)|list|json|load_json|from_entries; |from_entries; |mysql_to_dict('name')
D D |set_dict_key_value(S, A); |set_dict_key_value('a:b', A); |append_dict_key_value(S, A);
 |append_dict_key_value('x:b', A); |extend_dict_key_value('x:b', L); |extend_dict_key_value(S, L);
 |extend_dict_key_value('n', D); |update_dict_key_value('x:y', D); |update_dict_key_value(S, D);
 |json_encode_dict; |json_decode_dict; .copy(); |json|load_json; |yaml|load_yaml; |to_entries|from_entries;
 |set_dict_key_value('a|c', A, '|')
D L |list; |dictsort; |dictsort(by='value'); |dictsort(reverse=true); |dictsort(true); |items|list;
 .items()|list; .keys()|list; .values()|list; |to_entries; |json_query('keys(@)'); |json_query('values(@)');
 |map('upper')|list; |sort; |dict_to_sls_yaml_params
D S |compare_dicts(D)|json; |json; |json(indent=N); |json(sort_keys=false); |tojson; |tojson(indent=N); |yaml;
 |yaml(false); |python; |pprint; |string; |xmlattr; |urlencode; |join(S); |dict_to_sls_yaml_params|string;
 |yaml_encode|string; |traverse(S, S)|string; |traverse('a:b', S)|json; |json_query('a')|json; |xml;
 |json_query('a.b || b')|json; .get(S, S)|string; |method_call('get', S)|string; |attr(S)|string;
 .a|default(S)|string; |length|string
D N |length; |count; |traverse('users:ann:uid', N)
D B is mapping; is iterable; is sequence; == D; |is_iter; |to_bool; |is_list; is defined
P L |map(attribute='name')|list; |map(attribute='v')|list; |selectattr('v')|list;
 |selectattr('v', 'defined')|list; |rejectattr('v', 'eq', A)|list; |sort(attribute='name');
 |groupby('name')|list; |unique(attribute='name')|list; |map(attribute='v', default=S)|list;
 |json_query('[?v].name'); |json_query('[*].name'); |sum(attribute='v', start=[]);
 |selectattr('name', 'in', L)|map(attribute='name')|list; |rejectattr('v')|list; |to_entries
P D |from_entries; |mysql_to_dict('name'); |first; |last
P S |json; |yaml; |yaml(false); |python; |xml; |dict_to_sls_yaml_params|string
B S |string; |json; |yaml; |python; |yaml_encode; |lower
B N |int; |float; |to_num
B B |to_bool; and B; or B; is true; is false; is boolean; == B; is number
A S |string; |json; |yaml(false); |default(S)|string; |default(S, true)|string; |python; |pprint; |d(S)|string;
 |format|string; |to_bool|string
A L |default(L)|list
A B is defined; is none; is string; is mapping; is number; is iterable; is sequence; is callable; is true;
 is sameas(A); == A; != A; in L
S A |load_yaml; |load_json; |format(A); |format(A, A); |traverse(S, S)
D A |traverse(S, A); |traverse(L, A); |first; .get(S)
L A |traverse('0', A); |traverse('1:a', A); |first; |last; [0]; |random_sample(1, 7)
`)

type rule struct{ in, out, text string }

func parseRules(table string) map[string][]rule {
	byOut := map[string][]rule{}
	var in, out string
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		if line[0] != ' ' {
			in, out, line = line[:1], line[2:3], line[4:]
		}
		for text := range strings.SplitSeq(line, "; ") {
			if text = strings.Trim(text, " ;"); text != "" {
				byOut[out] = append(byOut[out], rule{in, out, text})
			}
		}
	}
	return byOut
}

// atoms are expressions of each kind.
var atoms = map[string][]string{
	"S": {"grains.os", "pillar.motd", "pillar.word", "sls", "tpldir", "saltenv", "grains.fqdn", "slspath",
		"salt['test.echo']('a b')",
		"salt['grains.get']('nested:a:b')", "salt.grains.get('os', 'x')", "salt.grains.get('no', 'x')",
		"opts.id", "(S if B else S)", "ifelse(B, S, S)", "tplfile", "sls_path"},
	"N": {"pillar.port", "grains.osmajorrelease", "grains.load", "salt['pillar.get']('users:ann:uid')",
		"(N if B else N)", "1", "2"},
	"L": {"grains.roles", "grains.ip4", "range(N)", "range(N, 5)", "[1, 2, 3]", "['b', 'A', 'c']", "[]",
		"[A, A]", "[S, S, S]", "[N, N, N]", "(S, N)",
		"[[1, [2, A]], [3]]", "[none, 1, none]", "grains.nested.list",
		"['10.0.0.1/24', '::1', 'x', '192.168.1.1']", "[true, false, A]", "[D, D]",
		"[['a', 1], ['b', A]]", "[B, B]"},
	"D": {"pillar.users", "grains.nested", "{'a': 1, 'b': [2]}", "{}", "dict(a=A, b=A)",
		"odict([('a', A), ('b', A)])", "{'a': {'b': A}, 'c': none}", "{S: A}",
		"{'x': {'b': [1]}, 'n': ['q']}", "{S: S, S: N}", "{1: A, 'z': L}",
		"salt['pillar.get']('users:ann', {})", "salt['pillar.get']('no:such', {'a': 1})"},
	"B": {"true", "false", "grains.yes", "(not B)", "(not L)"},
	"P": {"[{'name': 'x', 'v': A}, {'name': 'y'}]", "[{'name': S, 'v': L}, {'name': S, 'v': L}]",
		"[{'key': 'a', 'value': A}, {'key': 'b', 'value': 2}]", "[D, {'name': S}]"},
	"A": {"none", "grains.none", "nope", "pillar.nope", "none", "grains.none", "salt['no.such'](A)",
		"namespace(a=A).a", "cycler(A, A).next()", "grains", "pillar", "joiner(S)()",
		"salt['pillar.get']('no')"},
}

// fill replaces the letters of kinds.
func (g *grower) fill(s string) string {
	var b strings.Builder
	for i := range len(s) {
		before, after := " ", " "
		if i > 0 {
			before = s[i-1 : i]
		}
		if i+1 < len(s) {
			after = s[i+1 : i+2]
		}
		if strings.Contains("SNLDBPA", s[i:i+1]) && strings.Contains("(=[{: ",
			before) && strings.Contains("),]}:|. ", after) {
			b.WriteString(g.kind(s[i : i+1]))
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// expr is an expression of any kind.
func (g *grower) expr() string { return g.kind("A") }

// kind is an expression of a kind, or now and then of another.
func (g *grower) kind(kind string) string {
	g.depth++
	defer func() { g.depth-- }()
	if g.chance(400) || kind == "A" && !g.chance(25) {
		kind = g.one("S", "S", "N", "L", "D", "B", "P", "L")
	}
	if list := rules[kind]; g.depth < 7 && g.IntN(100) < 55 && len(list) > 0 {
		r := list[g.IntN(len(list))]
		in := g.kind(r.in)
		if strings.Contains("|.[", r.text[:1]) {
			if in[0] == '-' || in[0] >= '0' && in[0] <= '9' || r.text[0] != '|' && strings.Contains(in, "|") {
				in = "(" + in + ")"
			}
			return in + g.fill(r.text)
		}
		return "(" + in + " " + g.fill(r.text) + ")"
	}
	switch {
	case kind == "S" && !g.chance(3):
		return g.one(texts...)
	case kind == "N" && g.chance(15):
		return g.one(odd...)
	case kind == "N" && !g.chance(4):
		return g.one(numbers...)
	case len(g.names) > 0 && g.chance(9):
		return g.one(g.names...)
	case g.depth > 8:
		return map[string]string{"S": "'s'", "N": "1", "L": "[]", "D": "{}", "B": "true", "P": "[]", "A": "none"}[kind]
	}
	return g.fill(g.one(atoms[kind]...))
}

func (g *grower) declare() string {
	name := "v" + strconv.Itoa(len(g.names)%5)
	g.names = append(g.names, name)
	return name
}

func (g *grower) body() {
	if g.depth++; g.depth < 4 {
		for range 1 + g.IntN(2) {
			g.statement()
		}
	}
	g.depth--
}

func (g *grower) tag(s string) {
	g.b.WriteString(g.one("{% ", "{% ", "{%- ", "{%+ ") + s + g.one(" %}", " %}", " -%}", " %}\n"))
}

func (g *grower) statement() {
	switch g.IntN(22) {
	case 0:
		e := g.expr()
		g.tag("set " + g.declare() + " = " + e)
	case 1:
		e := g.kind("L")
		g.tag("for " + g.declare() + " in " + e + g.one("", "", " if "+g.kind("B"), " recursive"))
		g.body()
		g.b.WriteString(g.one("", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.cycle('a', 'b') }}",
			"{% break %}", "{{ loop.previtem }}",
			"{% if loop.first %}{% continue %}{% endif %}", "{{ loop.changed("+g.expr()+") }}"))
		if g.chance(4) {
			g.tag("else")
			g.body()
		}
		g.tag("endfor")
	case 2:
		g.tag("if " + g.kind("B"))
		g.body()
		if g.chance(2) {
			g.tag("elif " + g.kind("B"))
			g.body()
		}
		if g.chance(2) {
			g.tag("else")
			g.body()
		}
		g.tag("endif")
	case 3:
		name := g.one("f", "g")
		g.tag("macro " + name + "(x, y=" + g.expr() + ")")
		g.names = append(g.names, "x", "y")
		g.body()
		g.b.WriteString(g.one("", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}"))
		g.tag("endmacro")
		g.names = g.names[:len(g.names)-2]
		g.b.WriteString("{{ " + name + "(" + g.expr() + g.one("", ", "+g.expr(), ", y="+g.expr(), ", z=1") + ") }}")
	case 4:
		r := g.one("upper", "indent(2)", "replace(S, S)", "trim", "title", "yaml_dquote", "md5", "json",
			"base64_encode", "wordwrap(8)", "striptags")
		g.tag("filter " + g.fill(r))
		g.body()
		g.tag("endfilter")
	case 5:
		g.tag("with " + g.declare() + " = " + g.expr())
		g.body()
		g.tag("endwith")
	case 6:
		kind := g.one("yaml", "json", "text")
		g.tag("load_" + kind + " as " + g.declare())
		g.b.WriteString(g.one("a: [1, {b: c}]", `{"a": [1, null, true]}`, "x", "", "a: {{ "+g.expr()+"|json }}",
			"{{ "+g.expr()+"|yaml }}",
			"- 017\n- yes\n- 1:30\n- 2020-01-02\n"))
		g.tag("endload")
		g.b.WriteString("{{ " + g.names[len(g.names)-1] + g.one("", "|json", ".a", "|yaml(false)") + " }}")
	case 7:
		g.tag(g.one("import_yaml 'c/data.yml' as ", "import_json 'c/data.json' as ",
			"import_text 'c/text.txt' as ", "import 'map.jinja' as ") + g.declare())
		g.b.WriteString("{{ " + g.names[len(g.names)-1] + g.one("", "|length", "|string") + " }}")
	case 8:
		g.tag("do " + g.expr())
	case 9:
		g.tag("set " + g.declare())
		g.body()
		g.tag("endset")
	case 10:
		g.b.WriteString(g.one("{# c #}", "{%- raw %}{{ x }}{% endraw -%}", " text\n", "\n", "a: ", "  - ",
			"{#- d -#}", "é\n", "\t"))
	case 11:
		g.tag(g.one("set port = 1 %}{% include 'included.txt'", "include 'no.txt' ignore missing",
			"from 'map.jinja' import port, line"))
	default:
		g.b.WriteString(g.one("{{ ", "{{- ", "{{ ") + g.expr() + g.one(" }}", " -}}", " }}\n", " }} "))
	}
}
