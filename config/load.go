package config

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"clustermaster/value"
)

// DefaultDir is where Salt looks for its files.
const DefaultDir = "/etc/salt"

// Load reads DIR/master with its includes. An empty dir means the environment's
// SALT_CONFIG_DIR, else DefaultDir; only there SALT_MASTER_CONFIG may name
// another main file. A missing file gives the defaults.
//
// The error is a *FileError when the main file can't be read or parsed, else a join of *Problem,
// one for each option to change (see Problems). It returns warnings also with an error.
func Load(dir string, getenv func(string) string) (*Options, []Warning, error) {
	return loadHere(dir, getenv, host{})
}

// LoadForCommand is Load for a command that asks a running master. It does not look up sdb://
// addresses in secrets and in options that only masters read, and leaves them there as text. It
// does not check cluster_secret, which may be in a file that only the master's user can read.
func LoadForCommand(dir string, getenv func(string) string) (*Options, []Warning, error) {
	return loadHere(dir, getenv, host{command: true})
}

// LoadForClient is LoadForCommand for Salt's own commands, except salt-cp: options of the user's
// saltrc take the place of the master's. The environment's SALT_CLIENT_CONFIG may name another
// file.
func LoadForClient(dir string, getenv func(string) string) (*Options, []Warning, error) {
	h := host{command: true}
	if h.saltrc = getenv("SALT_CLIENT_CONFIG"); !isFile(h.saltrc) {
		h.saltrc = ""
		switch folder, xdg := ClientDir(getenv); {
		case xdg:
			h.saltrc = filepath.Join(folder, "saltrc")
		case filepath.IsAbs(folder): // the user has a home
			h.saltrc = filepath.Join(folder, ".saltrc")
		}
	}
	return loadHere(dir, getenv, h)
}

// ClientDir is the folder of the user's own files, saltrc and salt_token: the folder salt below
// XDG_CONFIG_HOME or ~/.config, which counts as xdg, and without one the user's home.
func ClientDir(getenv func(string) string) (folder string, xdg bool) {
	home, base := getenv("HOME"), getenv("XDG_CONFIG_HOME")
	if base == "" {
		base = filepath.Join(home, ".config")
	}
	folder = filepath.Join(base, "salt")
	if info, err := os.Stat(folder); err == nil && info.IsDir() {
		return folder, true
	}
	return home, false
}

func loadHere(dir string, getenv func(string) string, h host) (*Options, []Warning, error) {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "localhost"
	}
	login := "root"
	if u, err := user.Current(); err == nil {
		login = u.Username
	}
	h.name, h.user, h.home = name, login, getenv("HOME")
	return load(mainFile(dir, getenv), h)
}

// host is the machine's part of the defaults, and whether a command reads them.
type host struct {
	name, user, home string
	command          bool
	saltrc           string // "": none is read
}

func mainFile(dir string, getenv func(string) string) string {
	if file := getenv("SALT_MASTER_CONFIG"); dir == "" && file != "" && isFile(file) {
		return file
	}
	return filepath.Join(Dir(dir, getenv), "master")
}

// Dir is the folder of the configuration files. An empty dir means the environment's
// SALT_CONFIG_DIR, else DefaultDir. A leading ~ is a home folder.
func Dir(dir string, getenv func(string) string) string {
	if dir == "" {
		dir = getenv("SALT_CONFIG_DIR")
	}
	if dir == "" {
		dir = DefaultDir
	}
	return ExpandUser(dir, getenv("HOME"))
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func load(path string, h host) (*Options, []Warning, error) {
	s := source{home: h.home}
	if err := s.read(path); err != nil {
		return nil, s.warnings, err
	}
	if err := s.overlay(h.saltrc); err != nil {
		return nil, s.warnings, err
	}
	o := &Options{ConfFile: path, home: h.home, Extra: make(map[string]any, len(s.values)), origins: s.origins,
		files: s.files, leftOut: Broken(s.warnings)}
	l := &loader{o: o, warnings: s.warnings, command: h.command}
	l.aliases(&s)
	l.hours(&s)
	l.fill(l.resolve(s.values))
	l.hideGit()
	o.paths(h)
	l.check()
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, func(a, b *Problem) int {
			if c := strings.Compare(a.File, b.File); c != 0 {
				return c
			}
			return a.Line - b.Line
		})
		errs := make([]error, len(l.problems))
		for i, p := range l.problems {
			errs[i] = p
		}
		return nil, l.warnings, errors.Join(errs...)
	}
	return o, l.warnings, nil
}

// Now reads an option from the files again. It is nil if they don't set it. Only Load checks it.
func (o *Options) Now(option string) (any, error) {
	s := source{home: o.home}
	if err := s.read(o.ConfFile); err != nil {
		return nil, err
	}
	v, _ := s.values.Get(option)
	return v, nil
}

// loader turns values into options and collects problems.
type loader struct {
	o        *Options
	problems []*Problem
	warnings []Warning
	command  bool // reads the options, not a master
}

func (l *loader) refuse(option, format string, args ...any) {
	at, ok := l.o.origins[option]
	if !ok {
		at.file = l.o.ConfFile // where the option should be written
	}
	l.problems = append(l.problems, &Problem{File: at.file, Line: at.line, Option: option,
		Text: fmt.Sprintf(format, args...)})
}

func (l *loader) warn(option, format string, args ...any) {
	at := l.o.origins[option]
	l.warnings = append(l.warnings, Warning{File: at.file, Line: at.line, Option: option,
		Text: fmt.Sprintf(format, args...)})
}

// aliases replaces older names by the present ones.
func (l *loader) aliases(s *source) {
	for _, a := range [][2]string{{"cluster_port", "cluster_pool_port"},
		{"environment", "saltenv"}} {
		v, old := s.values.Get(a[0])
		if !old {
			continue
		}
		if _, both := s.values.Get(a[1]); both {
			l.warn(a[0], "ignored, %s is set as well", a[1])
			continue
		}
		l.warn(a[0], "old name, use %s", a[1])
		s.values = s.values.Set(a[1], v)
		s.origins[a[1]] = s.origins[a[0]]
	}
}

// hours converts keep_jobs of Salt 3006 and 3007, which is in hours. It counts unless
// keep_jobs_seconds is changed (salt.utils.job.get_keep_jobs_seconds).
func (l *loader) hours(s *source) {
	v, ok := s.values.Get("keep_jobs")
	if n, isNumber := whole(v); ok && isNumber && n != 24 { // 24 is the default
		if seconds, given := s.values.Get("keep_jobs_seconds"); !given ||
			reflect.DeepEqual(seconds, table()["keep_jobs_seconds"].fallback) {
			s.values = s.values.Set("keep_jobs_seconds", n*3600)
			s.origins["keep_jobs_seconds"] = s.origins["keep_jobs"]
			l.warn("keep_jobs", "old name, use keep_jobs_seconds: %d", n*3600)
		} else {
			l.warn("keep_jobs", "ignored, keep_jobs_seconds is set as well")
		}
	}
}

// fill sets defaults, then the values that were read.
func (l *loader) fill(values value.Map) {
	fields := reflect.ValueOf(l.o).Elem()
	types := fields.Type()
	t := table()
	for name, k := range t {
		if k.field < 0 {
			continue
		}
		if err := assign(fields.Field(k.field), types.Field(k.field).Tag, k.fallback); err != nil {
			panic("default of " + name + ": " + err.Error())
		}
	}
	var names []string
	for _, e := range values {
		name := e.Key.(string) // parse made the keys texts
		l.o.Extra[name] = e.Value
		if isSecret(name) && e.Value != nil {
			l.o.Extra[name] = Secret(value.Str(e.Value))
		}
		k, ok := t[name]
		switch {
		case !ok && ofBackEnds[name] && !isSDB(e.Value): // package auth checks these
			continue
		case !ok && slices.Contains(undeclaredSSH, name):
			continue
		case !ok && !ofBackEnds[name]:
			if names == nil {
				names = knownNames()
			}
			if !ofReturner(name, values) {
				l.unknown(name, names)
			}
			continue
		case e.Value == nil: // a name without a value counts as absent
			continue
		case isSDB(e.Value): // refused by resolve
			continue
		}
		if err := conform(k.types, e.Value); err != nil {
			l.refuse(name, "%v", hide(name, err))
			continue
		}
		if k.field >= 0 {
			if err := assign(fields.Field(k.field), types.Field(k.field).Tag, e.Value); err != nil {
				l.refuse(name, "%v", hide(name, err))
			}
		}
	}
}

// hide removes a secret's value from an error.
func hide(name string, err error) error {
	if isSecret(name) {
		return errors.New("is not text; put the secret in quotes")
	}
	return err
}

func (l *loader) unknown(name string, names []string) {
	hint := meant(name, names)
	if strings.HasPrefix(name, "cluster_") {
		if hint == "" {
			hint = "; remove it or correct its name"
		}
		l.refuse(name, "unknown option%s", hint)
		return
	}
	l.warn(name, "unknown option; only modules in Python can read it%s", hint)
}

// ofReturner reports whether an option belongs to a returner, which reads it itself: returner.*, or
// a name that begins with that of a returner in use, such as mysql.host.
func ofReturner(name string, values value.Map) bool {
	module, _, dotted := strings.Cut(name, ".")
	if !dotted || module == "returner" {
		return dotted
	}
	for _, option := range []string{"event_return", "ext_job_cache", "master_job_cache",
		"schedule_returner"} {
		v, _ := values.Get(option)
		list, isList := v.([]any)
		if v == module || isList && slices.Contains(list, any(module)) {
			return true
		}
	}
	return false
}
