package modules

import (
	"context"
	"slices"
	"strings"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// configSources are where config.get and config.option look, in this order.
var configSources = []string{"opts", "grains", "pillar", "master"}

func configFunctions() []function {
	omit := []param{opt("omit_opts", false), opt("omit_grains", false), opt("omit_pillar", false),
		opt("omit_master", false)}
	return []function{
		{name: "config.get", params: []param{need("key"), opt("default", ""), opt("delimiter", ":"),
			opt("merge", nil), opt("omit_opts", false), opt("omit_pillar", false),
			opt("omit_master", false), opt("omit_grains", false)}, run: configGet},
		{name: "config.option", params: slices.Concat([]param{need("value"), opt("default", nil)}, omit,
			[]param{opt("omit_all", false), opt("wildcard", false)}), run: configOption},
		{name: "config.dot_vals", params: []param{need("value")},
			run: func(_ context.Context, c *call) (any, error) {
				out := value.Map{}
				for _, p := range append(slices.Clip(c.data("master")), c.who.Opts...) {
					if name, ok := p.Key.(string); ok &&
						strings.HasPrefix(name, c.text("value")+".") {
						out = out.Set(name, p.Value)
					}
				}
				return out, nil
			}},
		{name: "config.merge", params: []param{need("value"), opt("default", ""),
			opt("omit_opts", false), opt("omit_master", false), opt("omit_pillar", false)},
			run: configMerge},
	}
}

func (c *call) data(where string) value.Map {
	switch where {
	case "opts":
		return c.who.Opts
	case "grains":
		return c.who.Grains
	case "pillar":
		return c.who.Pillar
	case "defaults":
		return configDefaults
	}
	v, _ := c.who.Pillar.Get("master")
	m, _ := v.(value.Map)
	return m
}

// configGet looks a path up in each source, or in all of them merged.
func configGet(ctx context.Context, c *call) (any, error) {
	var sources []value.Map
	if c.any("merge") == nil {
		for _, w := range configSources {
			if !c.is("omit_" + w) {
				sources = append(sources, c.data(w))
			}
		}
		sources = append(sources, configDefaults)
	} else {
		lists, _ := c.who.Opts.Get("pillar_merge_lists")
		all := configDefaults
		for _, w := range []string{"master", "pillar", "grains", "opts"} {
			if c.text("merge") == "overwrite" {
				all = value.Update(all, c.data(w))
			} else {
				all = value.Recurse(all, c.data(w), value.Truth(lists))
			}
		}
		sources = []value.Map{all}
	}
	for _, source := range sources {
		if v, ok := value.Traverse(source, c.any("key"), c.text("delimiter")); ok {
			if s, ok := v.(string); ok {
				return c.sdbGet(ctx, s)
			}
			return v, nil
		}
	}
	return c.any("default"), nil
}

// configOption looks up a top-level name, or with wildcard all names that match.
func configOption(_ context.Context, c *call) (any, error) {
	var sources []value.Map
	for _, w := range configSources {
		if !c.is("omit_"+w) && !c.is("omit_all") {
			sources = append(sources, c.data(w))
		}
	}
	if c.is("wildcard") {
		return c.matchingOptions(sources), nil
	}
	for _, source := range append(sources, configDefaults) {
		if v, ok := source.Get(c.text("value")); ok {
			return v, nil
		}
	}
	if c.any("default") != nil {
		return c.any("default"), nil
	}
	return "", nil
}

// matchingOptions joins the sources in Salt's order: the last one's names come first, the first one
// that has a name gives its value, and defaults are for what none has.
func (c *call) matchingOptions(sources []value.Map) any {
	all := value.Map{}
	add := func(source value.Map, wins bool) {
		for _, p := range source {
			name, ok := p.Key.(string)
			if !ok || !fnmatch.Match(c.text("value"), name) {
				continue
			}
			if _, has := all.Get(name); wins || !has {
				all = all.Set(name, p.Value)
			}
		}
	}
	for _, source := range slices.Backward(sources) {
		add(source, true)
	}
	add(configDefaults, false)
	if len(all) == 0 && c.any("default") != nil {
		return c.any("default")
	}
	return all
}

// configMerge joins the maps or lists of a top-level name in options and pillar; the first source
// wins.
func configMerge(_ context.Context, c *call) (any, error) {
	var found any
	for _, w := range []string{"opts", "master", "pillar"} {
		v, ok := c.data(w).Get(c.text("value"))
		if !ok || c.is("omit_"+w) {
			continue
		}
		switch have := found.(type) {
		case nil:
			found = v
			if _, ok := v.(string); ok {
				return v, nil
			}
		case value.Map:
			if m, ok := v.(value.Map); ok {
				found = value.Update(m, have)
			}
		case []any:
			if list, ok := v.([]any); ok {
				found = slices.Concat(have, list)
			}
		}
	}
	if found != nil {
		return found, nil
	}
	if v, ok := configDefaults.Get(c.text("value")); ok {
		return v, nil
	}
	return c.any("default"), nil
}

// configDefaults are the values that Salt's module config has for options of its modules, in its
// order.
var configDefaults = value.Map{
	{Key: "mongo.db", Value: "salt"}, {Key: "mongo.password", Value: ""},
	{Key: "mongo.port", Value: int64(27017)}, {Key: "mongo.user", Value: ""},
	{Key: "redis.db", Value: "0"}, {Key: "redis.host", Value: "salt"},
	{Key: "redis.port", Value: int64(6379)},
	{Key: "test.foo", Value: "unconfigured"},
	{Key: "ca.cert_base_path", Value: "/etc/pki"},
	{Key: "solr.cores", Value: []any{}},
	{Key: "solr.host", Value: "localhost"}, {Key: "solr.port", Value: "8983"},
	{Key: "solr.baseurl", Value: "/solr"}, {Key: "solr.type", Value: "master"},
	{Key: "solr.request_timeout", Value: nil}, {Key: "solr.init_script", Value: "/etc/rc.d/solr"},
	{Key: "solr.dih.import_options", Value: value.Map{{Key: "clean", Value: false},
		{Key: "optimize", Value: true}, {Key: "commit", Value: true}, {Key: "verbose", Value: false}}},
	{Key: "solr.backup_path", Value: nil}, {Key: "solr.num_backups", Value: int64(1)},
	{Key: "poudriere.config", Value: "/usr/local/etc/poudriere.conf"},
	{Key: "poudriere.config_dir", Value: "/usr/local/etc/poudriere.d"},
	{Key: "ldap.uri", Value: ""}, {Key: "ldap.server", Value: "localhost"},
	{Key: "ldap.port", Value: "389"}, {Key: "ldap.tls", Value: false},
	{Key: "ldap.no_verify", Value: false}, {Key: "ldap.anonymous", Value: true},
	{Key: "ldap.scope", Value: int64(2)}, {Key: "ldap.attrs", Value: nil},
	{Key: "ldap.binddn", Value: ""}, {Key: "ldap.bindpw", Value: ""},
	{Key: "hosts.file", Value: "/etc/hosts"},
	{Key: "aliases.file", Value: "/etc/aliases"},
	{Key: "virt", Value: value.Map{{Key: "tunnel", Value: false},
		{Key: "images", Value: "/srv/salt-images"}}},
	{Key: "docker.exec_driver", Value: "docker-exec"},
	{Key: "docker.compare_container_networks", Value: value.Map{
		{Key: "static", Value: []any{"Aliases", "Links", "IPAMConfig"}},
		{Key: "automatic", Value: []any{"IPAddress", "Gateway", "GlobalIPv6Address", "IPv6Gateway"}},
	}},
}
