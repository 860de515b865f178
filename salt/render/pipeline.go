package render

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"clustermaster/value"
)

// stage is one renderer of a pipeline and its arguments.
type stage struct{ name, args string }

var renderers = []string{"jinja", "yaml", "json", "gpg", "py"}

// oldNames are Salt's former names of two pipelines.
var oldNames = map[string]string{"yaml_jinja": "jinja|yaml", "json_jinja": "jinja|json"}

// pipeline reads the first line of a file, such as #!jinja|yaml, or takes the default. As in Salt,
// it leaves out a renderer that the configuration forbids. An unknown one is an *Error.
func pipeline(src Source, defaultPipe string, opts value.Map,
	hosted func(name string) bool) ([]stage, error) {
	pipe := defaultPipe
	first, _, _ := strings.Cut(string(src.Data[:min(len(src.Data), 4096)]), "\n")
	if strings.HasPrefix(first, "#!") && !strings.HasPrefix(first, "#!/") {
		pipe = strings.TrimSpace(first)[2:]
	}
	if old, ok := oldNames[strings.TrimSpace(pipe)]; ok {
		pipe = old
	}
	blacklist, whitelist := names(opts, "renderer_blacklist"), names(opts, "renderer_whitelist")
	var out []stage
	for part := range strings.SplitSeq(pipe, "|") {
		name, args, _ := strings.Cut(strings.TrimSpace(part), " ")
		if len(whitelist) > 0 && !slices.Contains(whitelist, name) ||
			slices.Contains(blacklist, name) {
			continue
		}
		if !slices.Contains(renderers, name) && !hosted(name) {
			return nil, &Error{
				Path: src.Path, SLS: src.SLS, Renderer: name,
				Text: fmt.Sprintf("The renderer %q of %s is not available; use one of %s", name,
					src.Path, strings.Join(renderers, ", ")),
			}
		}
		out = append(out, stage{name, strings.TrimSpace(args)})
	}
	if len(out) == 0 {
		return nil, &Error{Path: src.Path, SLS: src.SLS,
			Text: fmt.Sprintf("renderer_blacklist and renderer_whitelist allow no renderer of "+
				"%q for %s", pipe, src.Path)}
	}
	return out, nil
}

func names(opts value.Map, key string) []string {
	v, _ := opts.Get(key)
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func validText(s string) bool { return utf8.ValidString(s) }

// place returns the variables that describe a template's own place, as Salt's generate_sls_context
// does. An SLS a.b is a/b.sls or a/b/init.sls.
func place(src Source) value.Map {
	dir := strings.TrimRight(strings.ReplaceAll(src.SLS, ".", "/"), "/")
	var out value.Map
	if src.Path != "" {
		file := src.Path
		switch {
		case src.SLS == "":
			file = file[strings.LastIndexByte(file, '/')+1:]
		case strings.HasSuffix(file, dir+".sls"):
			file = dir + ".sls"
		case strings.HasSuffix(file, dir+"/init.sls"):
			file = dir + "/init.sls"
		default:
			return value.Map{{Key: "tplpath", Value: src.Path}, {Key: "tplfile", Value: src.SLS},
				{Key: "tpldir", Value: folder(src.SLS, ".")}}
		}
		dir = folder(file, "")
		out = value.Map{
			{Key: "tplpath", Value: src.Path}, {Key: "tplfile", Value: file},
			{Key: "tpldir", Value: folder(file, ".")},
			{Key: "tpldot", Value: strings.ReplaceAll(dir, "/", ".")},
		}
	}
	return append(
		out,
		value.Pair{Key: "slspath", Value: dir},
		value.Pair{Key: "slsdotpath", Value: strings.ReplaceAll(dir, "/", ".")},
		value.Pair{Key: "slscolonpath", Value: strings.ReplaceAll(dir, "/", ":")},
		value.Pair{Key: "sls_path", Value: strings.ReplaceAll(dir, "/", "_")},
	)
}

func folder(path, none string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return none
}
