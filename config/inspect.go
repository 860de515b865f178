package config

import (
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
)

// Fate says how this program treats an option of a Salt master.
type Fate string

// The fates, best first.
const (
	Works       Fate = "works"
	Differently Fate = "works differently"
	Python      Fate = "needs the Python host"
	Refused     Fate = "refused" // prevents the start
)

// Verdict is the fate of one option in the configuration.
type Verdict struct {
	Option string `json:"option"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"` // from 1
	Fate   Fate   `json:"fate"`
	Text   string `json:"text,omitempty"` // the difference, and what to do
}

// needless are classes of unused.tsv whose options need no replacement: other programs read them,
// or no program does.
var needless = []string{"api", "cloud", "interface", "minion", "modes", "openfiles", "removed",
	"syndic", "tuning", "unlimited", "verifyenv", "watched"}

// withPython are options that are refused, or have no effect, because they name Python code.
var withPython = []string{
	"enable_ssh_minions", "engines", "engines_dirs", "event_return", "ext_job_cache", "ext_pillar",
	"extension_modules", "external_auth", "master_job_cache", "master_tops", "module_dirs",
	"pillar_dirs", "runner_dirs", "utils_dirs", "outputter_dirs", "render_dirs", "returner_dirs",
	"top_module_dirs", "tops_dirs", "wheel_dirs", "auth_dirs", "states_dirs",
}

// differentHere are options that work, with a difference to know.
var differentHere = map[string]string{
	"external_auth":        "tokens are kept in the cluster, those of before are not taken over: users log in again",
	"minimum_auth_version": "below 3, name minions older than mid-2025 in the option legacy_minions; others' requests need a token",
	"order_masters":        "name the ids of the syndics in the option syndics; others are refused",
	"rest_cherrypy":        "salt-api runs beside the master as before; it needs enable_clear_commands: True",
	"rest_tornado":         "salt-api runs beside the master as before; it needs enable_clear_commands: True",
	"sock_dir":             "Salt's own salt and salt-run beside the master need enable_clear_commands: True; those of the same name here don't",
	"cluster_pki_dir":      "keys are agreed on by the masters; the folder is a copy, or read once where it is shared",
	"cluster_secret":       "it is never sent; masters of Salt and of clustermaster do not form one cluster",
	"cluster_peers":        "all of them change to clustermaster together",
	"cache":                "minions' data are kept in the cluster's store; salt-run cache.migrate takes the old ones in",
	"keys.cache_driver":    "keys are kept in the cluster, and in this form as a copy",
}

// Inspect reads the configuration like Load, and reports the fate of every option that is set. It
// returns the options as far as they can be read, also if a start would be refused. The error is a
// *FileError.
func Inspect(dir string, getenv func(string) string) (*Options, []Verdict, error) {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "localhost"
	}
	login := "root"
	if u, err := user.Current(); err == nil {
		login = u.Username
	}
	path := mainFile(dir, getenv)
	s := source{home: getenv("HOME")}
	if err := s.read(path); err != nil {
		return nil, nil, err
	}
	o := &Options{ConfFile: path, Extra: make(map[string]any, len(s.values)), origins: s.origins,
		files: s.files}
	l := &loader{o: o, warnings: s.warnings}
	l.aliases(&s)
	l.hours(&s)
	l.fill(s.values)
	o.paths(host{name: name, user: login, home: getenv("HOME")})
	l.check()
	return o, l.verdicts(), nil
}

// verdicts combines the options that are set with the problems and warnings.
func (l *loader) verdicts() []Verdict {
	by := make(map[string]*Verdict)
	for name := range l.o.Extra {
		at := l.o.origins[name]
		v := &Verdict{Option: name, File: at.file, Line: at.line, Fate: Works}
		if text, ok := differentHere[name]; ok {
			v.Fate, v.Text = Differently, text
		}
		by[name] = v
	}
	get := func(name, file string, line int) *Verdict {
		if by[name] == nil {
			by[name] = &Verdict{Option: name, File: file, Line: line}
		}
		return by[name]
	}
	for _, w := range l.warnings {
		v := get(w.Option, w.File, w.Line)
		v.Fate, v.Text = Differently, joined(v.Text, w.Text)
		if _, known := differentHere[w.Option]; known && unusedText(w.Option) == w.Text {
			v.Text = differentHere[w.Option]
		} else if unusedText(w.Option) == w.Text &&
			slices.Contains(needless, unusedClass(w.Option)) {
			v.Fate = Works
		}
		if unusedClass(w.Option) == "python" || slices.Contains(slices.Concat(sshOptions, undeclaredSSH), w.Option) {
			v.Fate = Python
		}
	}
	for _, p := range l.problems {
		v := get(p.Option, p.File, p.Line)
		if v.Fate != Refused {
			v.Text = ""
		}
		v.Fate, v.Text = Refused, joined(v.Text, p.Text)
		if slices.Contains(withPython, p.Option) && !strings.Contains(p.Text, `"git"`) {
			v.Fate = Python
		}
	}
	var list []Verdict
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, *by[name])
	}
	return list
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// unusedClass returns the class of an option in unused.tsv, or "".
func unusedClass(name string) string {
	for _, l := range unusedLines() {
		if name == l.pattern || strings.HasSuffix(l.pattern, "*") &&
			strings.HasPrefix(name, l.pattern[:len(l.pattern)-1]) {
			return l.class
		}
	}
	return ""
}
