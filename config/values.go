package config

import (
	"maps"
	"path/filepath"
	"slices"

	"clustermaster/value"
)

// Values returns every option by name: its value as read, with complete paths, or its default.
// Secrets are Secret.
func (o *Options) Values() value.Map {
	t := table()
	names := slices.Collect(maps.Keys(t))
	for name := range o.Extra {
		if _, ok := t[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := make(value.Map, 0, len(names))
	for _, name := range names {
		v, given := o.Extra[name]
		if !given {
			v = t[name].fallback
		}
		switch name {
		case "id":
			v = o.ID
		case "cachedir":
			v = o.CacheDir
		case "pki_dir":
			v = o.PkiDir
		case "sock_dir":
			v = o.SockDir
		case "extension_modules":
			v = o.extensionModules(v)
		case "root_dir":
			v = o.RootDir
		case "user":
			v = o.User
		case "file_roots":
			v = o.FileRoots.values()
		case "pillar_roots":
			v = o.PillarRoots.values()
		case "conf_file":
			v = o.ConfFile
		}
		out = append(out, value.Pair{Key: name, Value: v})
	}
	return out
}

// extensionModules returns the folder of the site's modules, below root_dir as in Salt.
func (o *Options) extensionModules(v any) any {
	dir, isText := v.(string)
	if !isText {
		return v
	}
	if dir == "" {
		return filepath.Join(o.CacheDir, "extmods")
	}
	root, err := filepath.Abs(o.RootDir)
	if err != nil {
		root = o.RootDir
	}
	return prefix(root, dir)
}

func (r Roots) values() value.Map {
	out := make(value.Map, len(r))
	for i, e := range r {
		dirs := make([]any, len(e.Dirs))
		for j, d := range e.Dirs {
			dirs[j] = d
		}
		out[i] = value.Pair{Key: e.Name, Value: dirs}
	}
	return out
}
