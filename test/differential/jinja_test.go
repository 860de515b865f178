package differential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"clustermaster/salt/render"
	"clustermaster/value"
)

const roots = "../../salt/render/testdata/roots"

var (
	jinjaGrains = m("id", "web1", "os", "Debian", "os_family", "Debian", "osmajorrelease", int64(12), "ip4",
		[]any{"10.0.0.5", "127.0.0.1"}, "roles", []any{"web", "db"}, "nested", m("a", m("b", "deep"), "list",
			[]any{int64(1), int64(2)}), "none", nil, "yes", true, "fqdn", "web1.example.org", "mem_total",
		int64(2048), "load", 1.5)
	jinjaPillar = m("users", m("ann", m("uid", int64(1001)), "bob", m("uid", int64(1002))), "motd",
		"line one\nline two",
		"port", int64(8080), "word", "Straße ΟΔΟΣ")
)

// jinjaHost serves the roots of package render's corpus, and a few functions.
type jinjaHost struct{}

func (jinjaHost) File(_ context.Context, _, path string) ([]byte, bool, error) {
	b, err := os.ReadFile(filepath.Join(roots, path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return b, err == nil, err
}

var jinjaFunctions = []string{"grains.filter_by", "grains.get", "pillar.get", "test.echo"}

func (jinjaHost) HasFunction(_ context.Context, name string) bool {
	for _, f := range jinjaFunctions {
		if f == name || strings.HasSuffix(name, ".") && strings.HasPrefix(f, name) {
			return true
		}
	}
	return false
}

func (jinjaHost) Call(_ context.Context, fun string, args []any, kwargs value.Map) (any, error) {
	var other any = ""
	if len(args) > 1 {
		other = args[1]
	}
	if len(args) == 0 || len(args) > 2 || len(kwargs) > 0 {
		return nil, errors.New("not these arguments")
	}
	from := jinjaGrains
	switch fun {
	case "test.echo":
		return args[0], nil
	case "grains.filter_by": // as map.jinja calls it
		choices, _ := args[0].(value.Map)
		v, _ := choices.Get(jinjaGrains.String("os_family"))
		return v, nil
	case "pillar.get":
		from = jinjaPillar
	case "grains.get":
	default:
		return nil, fmt.Errorf("%s: %w", fun, render.ErrUnknownFunction)
	}
	if v, ok := value.Traverse(from, args[0], ":"); ok {
		return v, nil
	}
	return other, nil
}

// address is where an object lies, in its repr.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// corpus are the templates of package render.
func corpus(f *testing.F) (texts []string) {
	f.Helper()
	for _, name := range []string{"expressions.txt", "templates.txt"} {
		b, err := os.ReadFile("../../salt/render/testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		if name == "expressions.txt" {
			for line := range strings.Lines(string(b)) {
				texts = append(texts, "{{ "+strings.TrimSuffix(line, "\n")+" }}\n")
			}
			continue
		}
		for block := range strings.SplitSeq("\n"+string(b), "\n=== ") {
			if head, body, ok := strings.Cut(block, "\n"); ok && !strings.Contains(head, " | ") {
				texts = append(texts, body+"\n")
			}
		}
	}
	return texts
}

// FuzzJinja compares what templates become with salt.utils.templates. choices makes a template of
// real constructs, which is put behind source.
func FuzzJinja(f *testing.F) {
	for _, s := range []string{"{{ 1 + 1 }}\n",
		"{% for k, v in pillar.users.items() %}{{ k }}: {{ v.uid }}\n{% endfor %}",
		"{% set l = [] %}{% do l.append(1) %}{{ l }}", "{{ nope }}",
		"{% load_yaml as d %}a: [1, 2]{% endload %}{{ d|json }}",
		"{% from 'map.jinja' import port %}{{ port }}", "{{ 'a,b'.split(',')|join('-') }}",
		"{{ salt['grains.get']('os') }}"} {
		f.Add(s, []byte(nil))
	}
	for i, text := range corpus(f) {
		if i%8 == 0 && !volatile.MatchString(text) {
			f.Add(text, []byte(nil))
		}
	}
	for i := range 30 {
		f.Add("", []byte{byte(i), byte(7 * i), byte(31 * i)})
	}
	dir, err := filepath.Abs(roots)
	if err != nil {
		f.Fatal(err)
	}
	warm()
	salt := open(f, "jinja", map[string]any{"roots": dir, "grains": plain(jinjaGrains), "pillar": plain(jinjaPillar),
		"functions": jinjaFunctions})
	opts := m("id", "web1", "file_client", "local")
	f.Fuzz(func(t *testing.T, source string, choices []byte) {
		if len(choices) > 0 {
			source += grow(choices)
		}
		if !utf8.ValidString(source) || len(source) > 3000 ||
			strings.HasPrefix(source, "#!") || strings.TrimSpace(source) == "" {
			// Other renderers are named, or no renderer is asked.
			return
		}
		theirs, ok := salt.ask(t, []byte(source))
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		v, err := renderer().Render(ctx, render.Source{Path: "/roots/t.sls", SLS: "t", SaltEnv: "base",
			Data: []byte(source), Once: true}, "jinja",
			render.Context{ID: "web1", Grains: jinjaGrains, Pillar: jinjaPillar, Opts: opts}, jinjaHost{})
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, render.ErrTime) || errors.Is(err,
			render.ErrMemory) || errors.Is(err, render.ErrOutput) {
			salt.skip(t, "limit")
		}
		ours, _ := v.(string)
		if rule := differentJinja(source, ours, err, theirs[0]); rule != "" {
			salt.skip(t, rule)
		}
		ours = address.ReplaceAllString(ours, "0x")
		want := address.ReplaceAllString(string(theirs[0].body), "0x")
		if (err != nil) != (theirs[0].kind == '!') || err == nil && ours != want {
			salt.differ(t, "%q:\nours   %q, %v\nSalt's %v", source, ours, err, theirs[0])
		}
	})
}

var (
	dated     = regexp.MustCompile(`strftime|date_format`)
	setMakers = regexp.MustCompile(`unique|union|intersect|difference|compare_dicts`)
	volatile  = regexp.MustCompile(`random|shuffle|uuid|rand_str|lipsum|now|today|gen_mac|` +
		`show_full_context|http_query|dns_check|get_uid`)
	// odictText is the text of an odict, also of one whose letters a filter has joined.
	odictText = regexp.MustCompile(`(?is)` + strings.Join(strings.Split("OrderedDict", ""), ".{0,8}?") +
		`.{0,8}?\(.{0,8}?\[`)
)

// differentJinja names the rule that leaves a template out, or is empty. The places are parts of
// docs/differences.md.
func differentJinja(source, ours string, err error, theirs part) string {
	want, rule := string(theirs.body), ""
	switch {
	case (err == nil) == (theirs.kind == '=') && (err != nil || ours == want):
		return ""
	case volatile.MatchString(source):
		return "volatile" // each render gives another result, also in Salt
	case err != nil && strings.Contains(err.Error(), "Unable to parse"):
		return "dates" // May break, Rendering: dates as text
	case err != nil && strings.Contains(source, "odict") && strings.Contains(err.Error(), "loading yaml"):
		return "text of odict" // a template reads it again
	case err != nil:
		return ""
	case theirs.kind == '!' && strings.Contains(want, "Reference cycle"):
		return "flatten" // Works where it fails in Salt, Rendering: the filter flatten
	case theirs.kind == '!' && strings.Contains(want, "_GroupTuple.__new__"):
		return "groups in json_encode_dict" // Works where it fails in Salt, Rendering
	case dated.MatchString(source):
		return "dates"
	case odictText.MatchString(want):
		return "text of odict" // Cosmetic, Rendering: Python's own words
	case strings.Contains(source, "wordwrap"):
		ours, want, rule = unblanked(ours), unblanked(want), "blanks of wordwrap" // Cosmetic, Rendering: Python's own words
	}
	switch {
	case ours == want:
		return rule
	case setMakers.MatchString(source) && sorted(ours) == sorted(want):
		return "order of sets" // Python orders sets of text anew in each process
	case strings.Contains(source, "salt") && strings.Contains(want, "Markup("):
		return "arguments of functions" // May break, Rendering: arguments of functions
	}
	return ""
}

func unblanked(s string) string { return strings.ReplaceAll(s, " ", "") }

func sorted(s string) string {
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}

// plain is a map for JSON.
func plain(v any) any {
	switch v := v.(type) {
	case value.Map:
		var b strings.Builder
		b.WriteByte('{')
		for i, p := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			key, _ := json.Marshal(p.Key)
			val, _ := json.Marshal(plain(p.Value))
			fmt.Fprintf(&b, "%s:%s", key, val)
		}
		return json.RawMessage(b.String() + "}")
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	}
	return v
}
