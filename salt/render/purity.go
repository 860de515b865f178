package render

import (
	"crypto/sha256"
	"slices"
	"strings"

	"clustermaster/value"
)

// pure are the functions whose result depends only on their arguments and the Context.
// A render that called no other function can be cached. A Host must answer them from
// the Context given with it.
var pure = map[string]bool{
	"config.get": true, "config.option": true, "defaults.merge": true, "grains.filter_by": true,
	"grains.get":       true,
	"grains.has_value": true, "grains.item": true, "grains.items": true,
	"hashutil.base64_b64decode": true,
	"hashutil.base64_b64encode": true, "hashutil.md5_digest": true, "hashutil.sha256_digest": true,
	"hashutil.sha512_digest": true,
	"match.filter_by":        true, "pillar.get": true, "slsutil.merge": true,
	"slsutil.merge_all": true,
	"slsutil.update":    true,
	"test.echo":         true,
}

// isPure reports whether a call's result depends on the arguments and the Context only. config.get
// looks up addresses of sdb that it finds there; nodegroups change at a reload.
func isPure(fun string, args []any, kwargs value.Map, p *parts) bool {
	switch fun {
	case "config.get":
		return !p.hasSDB()
	case "match.filter_by":
		return !mentions(args, "N@", "nodegroup") && !mentions(kwargs, "N@", "nodegroup")
	}
	return pure[fun]
}

// mentions reports whether a text in v, or the name of a key, contains one of the words.
func mentions(v any, words ...string) bool {
	switch v := v.(type) {
	case string:
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(v, w) })
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return mentions(e, words...) })
	case value.Map:
		return slices.ContainsFunc(v, func(p value.Pair) bool {
			return mentions(p.Key, words...) || mentions(p.Value, words...)
		})
	}
	return false
}

// alwaysThere reports whether a function is pure, or a module ("grains.") has pure functions.
// Others may be there for some minions and at some times only.
func alwaysThere(name string) bool {
	if !strings.HasSuffix(name, ".") {
		return pure[name]
	}
	for fun := range pure {
		if strings.HasPrefix(fun, name) {
			return true
		}
	}
	return false
}

// dependency is a file that a render looked for.
type dependency struct {
	saltenv, path string
	sum           [sha256.Size]byte
	found         bool
}

func newDependency(saltenv, path string, data []byte, found bool) dependency {
	return dependency{saltenv, path, sha256.Sum256(data), found}
}

// usage is what a render's value depends on, apart from the source.
type usage struct {
	impure bool
	files  []dependency
	reads  reads
}

// add records what a worker reports about a template.
func (u *usage) add(r reply) {
	impure, _ := r.notes.Get("impure")
	u.impure = u.impure || r.impure || impure != false
	u.files = append(u.files, r.files...)
	k, _ := r.notes.Get("keys")
	keys, _ := k.(value.Map)
	for root := range varsRoot {
		switch v, _ := keys.Get(root.String()); v := v.(type) {
		case string: // all of it
			u.reads[root].all = true
		case []any:
			for _, e := range v {
				if name, ok := e.(string); ok {
					u.reads[root].add(name)
				}
			}
		}
	}
}

// addOptions records that the source is a template, which reads these options.
func (u *usage) addOptions() {
	for _, name := range templateOptions {
		u.reads[optsRoot].add(name)
	}
}

var templateOptions = []string{"allow_undefined", "jinja_env", "jinja_lstrip_blocks",
	"jinja_sls_env", "jinja_trim_blocks"}

// reads are the top-level keys that a template may read, for each piece of the context but vars,
// which always counts whole.
type reads [varsRoot]struct {
	all bool
	keySet
}

type keySet map[string]bool

func (k *keySet) add(name string) {
	if *k == nil {
		*k = keySet{}
	}
	(*k)[name] = true
}

// union adds other to r and reports whether r grew.
func (r *reads) union(other reads) bool {
	grew := false
	for root := range r {
		if other[root].all && !r[root].all {
			r[root].all, grew = true, true
		}
		for name := range other[root].keySet {
			if !r[root].keySet[name] {
				r[root].add(name)
				grew = true
			}
		}
	}
	return grew
}
