package orchestrate

import (
	"slices"
	"strings"

	"clustermaster/value"
)

// dict is a map that keeps the order of its keys, for many keys of any type.
type dict struct {
	pairs []value.Pair
	at    map[string]int
}

func newDict() *dict { return &dict{at: make(map[string]int)} }

func dictOf(m value.Map) *dict {
	d := newDict()
	for _, p := range m {
		d.set(p.Key, p.Value)
	}
	return d
}

// keyText makes a map key, which differs for texts and other values.
func keyText(k any) string {
	switch v := k.(type) {
	case string:
		return v
	case bool: // equals a number for Python
		if v {
			return "\x001"
		}
		return "\x000"
	case float64:
		if n := int64(v); float64(n) == v {
			k = n
		}
	}
	return "\x00" + value.Repr(k)
}

func (d *dict) get(k any) (any, bool) {
	i, ok := d.at[keyText(k)]
	if !ok {
		return nil, false
	}
	return d.pairs[i].Value, true
}

func (d *dict) has(k any) bool {
	_, ok := d.at[keyText(k)]
	return ok
}

func (d *dict) set(k, v any) {
	t := keyText(k)
	if i, ok := d.at[t]; ok {
		d.pairs[i].Value = v
		return
	}
	d.at[t] = len(d.pairs)
	d.pairs = append(d.pairs, value.Pair{Key: k, Value: v})
}

// drop removes keys. It walks over all of them.
func (d *dict) drop(gone func(k any) bool) {
	d.pairs = slices.DeleteFunc(d.pairs, func(p value.Pair) bool { return gone(p.Key) })
	clear(d.at)
	for i, p := range d.pairs {
		d.at[keyText(p.Key)] = i
	}
}

// pop removes one key, and rebuilds the map only if it has the key.
func (d *dict) pop(k any) (any, bool) {
	v, ok := d.get(k)
	if ok {
		t := keyText(k)
		d.drop(func(k any) bool { return keyText(k) == t })
	}
	return v, ok
}

// body returns the value under an id, if it is well formed.
func (d *dict) body(id any) (value.Map, bool) {
	v, _ := d.get(id)
	m, ok := v.(value.Map)
	return m, ok
}

// list returns a key's list, such as __extend__.
func (d *dict) list(key string) []any {
	v, _ := d.get(key)
	l, _ := v.([]any)
	return l
}

// hidden reports whether a key belongs to the compiler.
func hidden(key any) bool {
	s, ok := key.(string)
	return ok && strings.HasPrefix(s, "__")
}

// first returns the first entry of a map, as Python's next(iter(map)).
func first(m value.Map) (value.Pair, bool) {
	if len(m) == 0 {
		return value.Pair{}, false
	}
	return m[0], true
}

// single returns the entry of a map that has only one.
func single(v any) (key, val any, ok bool) {
	m, isMap := v.(value.Map)
	if !isMap || len(m) != 1 {
		return nil, nil, false
	}
	return m[0].Key, m[0].Value, true
}

// kind is a keyword whose list names other states. The order is that of Salt's weights.
type kind int

const (
	onfail kind = iota
	onfailAny
	onfailAll
	require
	requireAny
	onchanges
	onchangesAny
	watch
	watchAny
	prereq
	prerequired
	listen
	kinds
)

var kindNames = [kinds]string{
	"onfail", "onfail_any", "onfail_all", "require", "require_any", "onchanges", "onchanges_any",
	"watch", "watch_any", "prereq", "prerequired", "listen",
}

func (k kind) String() string { return kindNames[k] }

// base returns the kind without its any or all.
func (k kind) base() kind {
	switch k {
	case onfailAny, onfailAll:
		return onfail
	case requireAny:
		return require
	case onchangesAny:
		return onchanges
	case watchAny:
		return watch
	}
	return k
}

// isRequisite reports whether a keyword has a list of requisites. onfail_stop counts as one, though
// it is a flag.
func isRequisite(key any) bool {
	s, ok := key.(string)
	return ok && (s == "onfail_stop" || slices.Contains(kindNames[:], s))
}

// internal are the keywords that functions get only if they declare them.
var internal = func() map[string]bool {
	all := map[string]bool{}
	for _, names := range [][]string{kindNames[:], {
		"onfail_stop", "onchanges_in", "onfail_in", "prereq_in", "watch_in", "require_in",
		"listen_in", "fun", "state", "check_cmd", "cmd_opts_exclude",
		"failhard", "onlyif", "unless", "creates", "retry", "order", "parallel", "reload_modules",
		"reload_grains", "reload_pillar", "runas",
		"runas_password", "no_log", "fire_event", "saltenv", "umask", "use", "use_in", "__env__",
		"__sls__", "__id__", "__sls_included_from__",
		"__orchestration_jid__", "__pub_user", "__pub_arg", "__pub_jid", "__pub_fun", "__pub_tgt",
		"__pub_ret", "__pub_pid", "__pub_tgt_type",
		"__pub_resource_targets", "__pub_minion_is_target", "__pub_resource_target",
		"__pub_resource_job", "__pub_pure_resource_target",
		"__prereq__", "__prerequiring__", "__umask__",
	}} {
		for _, name := range names {
			all[name] = true
		}
	}
	return all
}()

// typeName is Python's name of a value's type.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case float64:
		return "float"
	case []any:
		return "list"
	case value.Map:
		return "OrderedDict"
	}
	return "int"
}
