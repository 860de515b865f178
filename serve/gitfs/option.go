package gitfs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/value"
	"clustermaster/value/pyregex"
)

// The two uses of remotes. A role is the prefix of its options.
const (
	RoleFiles  = "gitfs"
	RolePillar = "git_pillar"
)

// Problem is an error in one option of one remote. The other remotes are served.
type Problem struct {
	Role, Remote, Option string
	Text                 string // fact, cause, remedy
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s remote %s: option %s: %s", p.Role, redact(p.Remote), p.Option, p.Text)
}

// Config is the configuration of the remotes of one role.
type Config struct {
	Role    string
	Remotes []any // texts, and maps of one text to a list of options
	// Shown are the remotes with secrets hidden, by which requests name them; nil: as Remotes.
	Shown []any
	// Global returns an option of the whole role by its name without prefix, or nil if it is not
	// set.
	Global func(option string) any
}

// Remote is one repository as the configuration has it.
type Remote struct {
	Role   string
	ID     string // its text in the configuration
	Name   string // option name; "" for none
	URL    string
	Branch string // git_pillar: the word before the URL

	Base, Env, Fallback string
	AllSaltenvs         string // "" for none
	Saltenv             map[string]perEnv
	Global              map[string]perEnv // gitfs_saltenv
	Whitelist           []string
	Blacklist           []string
	RefTypes            []string
	Refspecs            []string
	NoMapping           bool // disable_saltenv_mapping
	Interval            time.Duration
	Access              Access

	root, mountpoint string
	byRef            map[string][]string // ref to the environments that options assign to it
	key              string
}

// Access says how to reach a remote.
type Access struct {
	User, Password, Pubkey, Privkey, Passphrase string
	Insecure                                    bool // allows credentials over http
	NoVerify                                    bool // does not check TLS certificates
	Proxy                                       string
}

// perEnv is the part of an option saltenv for one environment; nil fields are not set.
type perEnv struct{ ref, root, mountpoint *string }

// Options per role: those with a global form, and those of single remotes only.
var (
	accessOptions = []string{"user", "password", "pubkey", "privkey", "passphrase", "insecure_auth"}
	overridable   = map[string][]string{
		RoleFiles: {
			"base", "fallback", "mountpoint", "root", "ssl_verify", "saltenv_whitelist",
			"saltenv_blacklist", "refspecs", "disable_saltenv_mapping", "ref_types",
			"update_interval", "proxy", "depth",
		},
		RolePillar: {
			"base", "env", "root", "ssl_verify", "refspecs", "fallback", "proxy", "ref_types",
			"disable_saltenv_mapping", "depth", "update_interval",
		},
	}
	remoteOnly = map[string][]string{
		RoleFiles:  {"all_saltenvs", "name", "saltenv"},
		RolePillar: {"name", "mountpoint", "all_saltenvs"},
	}
	refKinds = []string{"branch", "tag", "sha"}
)

// Parse reads the remotes of a role. It leaves out those with a problem.
func Parse(c Config) ([]*Remote, []Problem) {
	p := &parser{Config: c}
	p.globalEnvs()
	var out []*Remote
	for _, v := range c.Remotes {
		r := p.remote(v)
		if r == nil {
			continue
		}
		if same := slices.IndexFunc(out, r.sharesFolder); same >= 0 {
			p.fault(r.ID, "name",
				fmt.Sprintf("the remote %s has the same id or name, and would share its cache; "+
					"give each its own name", redact(out[same].ID)))
			continue
		}
		out = append(out, r)
	}
	return out, p.problems
}

func (r *Remote) sharesFolder(other *Remote) bool {
	if r.Name != "" || other.Name != "" {
		return r.Name == other.Name
	}
	return r.ID == other.ID
}

type parser struct {
	Config
	global   map[string]perEnv
	problems []Problem
}

func (p *parser) fault(remote, option, text string) {
	p.problems = append(p.problems, Problem{p.Role, remote, option, text})
}

func (p *parser) globalEnvs() {
	if p.Role != RoleFiles {
		return
	}
	p.global = p.envsOf("(all)", p.Global("saltenv"))
}

// remote reads one remote; nil if it has an error.
func (p *parser) remote(v any) *Remote {
	before := len(p.problems)
	id, conf, ok := entryOf(v)
	if !ok {
		p.fault(text(v), "remotes",
			"is neither a URL nor a mapping of one URL to its options; write - URL or - URL: and a list")
		return nil
	}
	r := &Remote{Role: p.Role, ID: id, Global: p.global, byRef: make(map[string][]string)}
	set := func(option string) (any, bool) {
		if v, ok := conf[option]; ok {
			return v, true
		}
		if slices.Contains(remoteOnly[p.Role], option) {
			return nil, false
		}
		v := p.Global(option)
		return v, v != nil
	}
	p.known(r, v, conf)
	r.place(p, conf, set)
	r.mapping(p, set)
	r.access(p, set)
	if len(p.problems) > before {
		return nil
	}
	r.reverse()
	r.key = mirrorKey(r)
	return r
}

// entryOf splits an entry of the list: a text, or a map of one text to a list of maps.
func entryOf(v any) (id string, conf map[string]any, ok bool) {
	conf = make(map[string]any)
	switch v := v.(type) {
	case string:
		return v, conf, v != ""
	case value.Map:
		if len(v) != 1 {
			return "", nil, false
		}
		list, isList := v[0].Value.([]any)
		if m, isMap := v[0].Value.(value.Map); isMap {
			list, isList = []any{m}, true
		}
		id = text(v[0].Key)
		if !isList || len(list) == 0 {
			return id, conf, id != "" && v[0].Value != nil && isList
		}
		for _, e := range list {
			m, isMap := e.(value.Map)
			if !isMap {
				conf[text(e)] = nil
				continue
			}
			for _, pair := range m {
				conf[text(pair.Key)] = pair.Value
			}
		}
		return id, conf, id != ""
	}
	return "", nil, false
}

// known refuses unknown options.
func (p *parser) known(r *Remote, v any, conf map[string]any) {
	if _, isMap := v.(value.Map); isMap && len(conf) == 0 {
		p.fault(r.ID, "remotes", "has a colon behind the URL and no options; take the colon away")
	}
	all := slices.Concat(overridable[p.Role], remoteOnly[p.Role], accessOptions)
	slices.Sort(all)
	for _, option := range sorted(conf) {
		if !slices.Contains(all, option) {
			p.fault(r.ID, option, "is not an option of a remote; the options are "+strings.Join(all, ", "))
		}
	}
}

// place reads the repository's location, and which part of it to serve.
func (r *Remote) place(p *parser, conf map[string]any, set func(string) (any, bool)) {
	str := func(option string) string { v, _ := set(option); return text(v) }
	r.URL = r.ID
	if r.Role == RolePillar {
		if branch, url, ok := strings.Cut(strings.TrimSpace(r.ID), " "); ok {
			r.Branch, r.URL = branch, strings.TrimSpace(url)
		} else {
			r.Branch = text(p.Global("branch"))
		}
		if _, own := conf["base"]; own && r.Branch != anyEnv {
			p.fault(r.ID, "base", "counts only if the branch is __env__; remove it")
		}
	}
	if why := badURL(r.URL); why != "" {
		p.fault(r.ID, "remotes", why)
	}
	r.Name, r.AllSaltenvs = str("name"), str("all_saltenvs")
	r.Base, r.Fallback, r.Env = str("base"), str("fallback"), str("env")
	r.root = strings.TrimRight(str("root"), "/")
	r.mountpoint = strings.Trim(stripProto(str("mountpoint")), "/")
	if v, ok := set("update_interval"); ok {
		n, err := strconv.Atoi(text(v))
		if err != nil || n < 0 {
			p.fault(r.ID, "update_interval", fmt.Sprintf("%q is not a number of seconds", text(v)))
		}
		r.Interval = time.Duration(n) * time.Second
	}
	if r.Interval == 0 {
		r.Interval = 60 * time.Second
	}
}

// mapping reads how refs map to environments.
func (r *Remote) mapping(p *parser, set func(string) (any, bool)) {
	list := func(option string) []string { v, _ := set(option); return texts(v) }
	r.NoMapping = truth(set("disable_saltenv_mapping"))
	r.Whitelist, r.Blacklist = list("saltenv_whitelist"), list("saltenv_blacklist")
	r.RefTypes = list("ref_types")
	for i, kind := range r.RefTypes {
		r.RefTypes[i] = strings.ToLower(kind)
		if !slices.Contains(refKinds, r.RefTypes[i]) {
			p.fault(r.ID, "ref_types", fmt.Sprintf("%q is none of %s", kind,
				strings.Join(refKinds, ", ")))
		}
	}
	if len(r.RefTypes) == 0 {
		r.RefTypes = refKinds
	}
	r.Refspecs = list("refspecs")
	if len(r.Refspecs) == 0 {
		r.Refspecs = []string{"+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"}
	}
	for _, spec := range r.Refspecs {
		if !refspec.MatchString(spec) {
			p.fault(r.ID, "refspecs",
				fmt.Sprintf("%q is not a refspec whose right side is below refs/remotes/ or refs/tags/", spec))
		}
	}
	if v, ok := set("saltenv"); ok && r.Role == RoleFiles {
		r.Saltenv = p.envsOf(r.ID, v)
	}
}

var refspec = regexp.MustCompile(`^\+?refs/[^\s:^~?\[\\-][^\s:^~?\[\\]*:refs/(remotes|tags)/[^\s:^~?\[\\]+$`)

// access reads how to reach the remote.
func (r *Remote) access(p *parser, set func(string) (any, bool)) {
	str := func(option string) string { v, _ := set(option); return text(v) }
	a := Access{
		User: str("user"), Password: str("password"), Pubkey: str("pubkey"),
		Privkey:    str("privkey"),
		Passphrase: str("passphrase"), Insecure: truth(set("insecure_auth")), Proxy: str("proxy"),
	}
	if v, ok := set("ssl_verify"); ok {
		a.NoVerify = !truth(v, true)
	}
	switch scheme(r.URL) {
	case "http", "https":
		switch {
		case a.User == "" && a.Password == "":
		case a.Password == "":
			p.fault(r.ID, "password", "is missing beside user; set both, or none")
		case a.User == "":
			p.fault(r.ID, "user", "is missing beside password; set both, or none")
		case scheme(r.URL) == "http" && !a.Insecure:
			p.fault(r.ID, "insecure_auth",
				"is not set, and http would send the password in clear; use https, or set it to True")
		}
	case "ssh":
		for _, f := range []struct{ option, path string }{{"privkey", a.Privkey},
			{"pubkey", a.Pubkey}} {
			if why := unreadable(f.path); f.path != "" && why != "" {
				p.fault(r.ID, f.option, fmt.Sprintf("%q %s", f.path, why))
			}
		}
	}
	for _, s := range []string{a.User, a.Password, a.Passphrase, a.Proxy, a.Privkey} {
		if strings.ContainsAny(s, "\x00\n\r") {
			p.fault(r.ID, "user", "an option of authentication has a line break in it")
			break
		}
	}
	r.Access = a
}

// envsOf reads an option saltenv: a list of environments with lists of ref, root and mountpoint.
func (p *parser) envsOf(id string, v any) map[string]perEnv {
	out := make(map[string]perEnv)
	list, ok := v.([]any)
	if m, isMap := v.(value.Map); isMap {
		list, ok = []any{m}, true
	}
	if !ok && v != nil && text(v) != "" {
		p.fault(id, "saltenv", "is not a list of environments")
	}
	for _, e := range list {
		m, _ := e.(value.Map)
		for _, pair := range m {
			env := text(pair.Key)
			have := out[env]
			inner, _ := pair.Value.([]any)
			if one, isMap := pair.Value.(value.Map); isMap {
				inner = []any{one}
			}
			for _, o := range inner {
				options, _ := o.(value.Map)
				for _, option := range options {
					s := text(option.Value)
					switch text(option.Key) {
					case "ref":
						have.ref = &s
					case "root":
						have.root = &s
					case "mountpoint":
						s = stripProto(s)
						have.mountpoint = &s
					default:
						p.fault(id, "saltenv",
							fmt.Sprintf("environment %s has the option %q; ref, root and mountpoint are allowed", env, text(option.Key)))
					}
				}
			}
			out[env] = have
		}
	}
	return out
}

// reverse notes which environments a ref is mapped to. A remote's own base overrides the global
// option base.
func (r *Remote) reverse() {
	mapped := make(map[string]bool)
	for _, env := range sorted(r.Saltenv) {
		e := r.Saltenv[env]
		if e.ref == nil {
			continue
		}
		mapped[env] = true
		r.byRef[*e.ref] = append(r.byRef[*e.ref], env)
		if env == "base" {
			r.Base = *e.ref
			e.ref = nil
			r.Saltenv[env] = e
		}
	}
	for _, env := range sorted(r.Global) {
		if ref := r.Global[env].ref; ref != nil && !mapped[env] {
			r.byRef[*ref] = append(r.byRef[*ref], env)
		}
	}
}

// exposed applies saltenv_whitelist and saltenv_blacklist.
func (r *Remote) exposed(env string) bool { return pyregex.Exposed(env, r.Whitelist, r.Blacklist) }

// ref returns the ref that an environment is served from; false if there is none.
func (r *Remote) ref(env string) (string, bool) {
	if r.AllSaltenvs != "" {
		return r.AllSaltenvs, true
	}
	if env == "base" {
		return r.Base, true
	}
	if ref := r.Saltenv[env].ref; ref != nil {
		return *ref, true
	}
	if ref := r.Global[env].ref; ref != nil {
		return *ref, true
	}
	return env, !r.NoMapping
}

// Root returns the folder of the repository with an environment's files.
func (r *Remote) Root(env string) string {
	return strings.TrimRight(r.forEnv(env, func(e perEnv) *string { return e.root }, r.root), "/")
}

// Mountpoint returns the folder of an environment in which the files appear.
func (r *Remote) Mountpoint(env string) string {
	return strings.TrimRight(r.forEnv(env, func(e perEnv) *string { return e.mountpoint },
		r.mountpoint), "/")
}

func (r *Remote) forEnv(env string, pick func(perEnv) *string, fallback string) string {
	if v := pick(r.Saltenv[env]); v != nil {
		return *v
	}
	if v := pick(r.Global[env]); v != nil {
		return *v
	}
	return fallback
}

// Label names the remote for operators, without credentials.
func (r *Remote) Label() string {
	if r.Name != "" {
		return r.Name
	}
	return redact(r.ID)
}

// anyEnv is the name that stands for the requested environment.
const anyEnv = "__env__"

// isHex reports whether Python's int(s, 16) succeeds.
func isHex(s string) bool {
	s = strings.TrimSpace(s)
	s = strings.TrimLeft(s[:min(1, len(s))], "+-") + s[min(1, len(s)):]
	if lower := strings.ToLower(s); strings.HasPrefix(lower, "0x") {
		s = strings.TrimPrefix(s[2:], "_")
	}
	last := '_'
	for _, c := range s {
		if !strings.ContainsRune("0123456789abcdefABCDEF_", c) || c == '_' && last == '_' {
			return false
		}
		last = c
	}
	return last != '_'
}

var (
	proto   = regexp.MustCompile(`^[^:/]+://`)
	scpLike = regexp.MustCompile(`^([^@:/]+@)?[^@:/\s]+:[^:]`)
	secret  = regexp.MustCompile(`(://[^/@:\s]*):[^@/\s]*@`)
)

func stripProto(s string) string { return proto.ReplaceAllString(s, "") }

// redact hides the password of a URL.
func redact(s string) string { return secret.ReplaceAllString(s, "$1:[redacted]@") }

// schemes are the transports that remotes may use.
var schemes = []string{"http", "https", "ssh", "git", "file"}

// scheme returns the transport of a URL; "" if it is not allowed.
func scheme(url string) string {
	if strings.HasPrefix(url, "/") {
		return "file"
	}
	if s, _, ok := strings.Cut(url, "://"); ok {
		s = strings.ToLower(s)
		if s == "git+ssh" || s == "ssh+git" {
			s = "ssh"
		}
		if slices.Contains(schemes, s) {
			return s
		}
		return ""
	}
	if scpLike.MatchString(url) && !strings.Contains(url, "::") {
		return "ssh"
	}
	return ""
}

// badURL returns the error of a URL, or "".
func badURL(url string) string {
	switch {
	case url == "" || strings.HasPrefix(url, "-") || strings.ContainsAny(url, "\x00\n\r"):
		return "is no URL"
	case scheme(url) == "":
		return "has none of the transports " + strings.Join(schemes, ", ") + "; write the whole URL"
	}
	return ""
}
