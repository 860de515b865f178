package settings

import (
	"path/filepath"

	"clustermaster/config"
	"clustermaster/salt/hosted"
	"clustermaster/salt/pythonhost"
	"clustermaster/value"
)

// ofSalt are the options whose values Salt gets from this master. It reads the others from the
// configuration.
var ofSalt = []string{
	"cachedir", "cython_enable", "enable_zip_modules", "engines_dirs", "extension_modules", "extmod_blacklist",
	"extmod_whitelist", "file_roots", "id", "module_dirs", "optimization_order", "outputter_dirs",
	"pillar_roots", "pki_dir", "render_dirs", "returner_dirs", "root_dir", "runner_dirs", "sock_dir", "states_dirs",
	"user", "utils_dirs",
}

// Python takes the options of the host of Python code.
func Python(o *config.Options) pythonhost.Options {
	conf, err := filepath.Abs(o.ConfFile) // the host runs in /
	if err != nil {
		conf = o.ConfFile
	}
	opts := pythonhost.Options{
		ConfFile:  conf,
		Timeout:   o.PythonTimeout,
		Runner:    o.PythonRunnerTimeout,
		Memory:    int64(o.PythonMemory),
		Output:    int64(o.PythonOutput),
		Processes: o.PythonProcesses,
		Children:  o.PythonChildren,
		Pillars:   o.PythonPillarsPerChild,
		Idle:      o.PythonIdle,
	}
	values, _ := Value(o.Values()).(value.Map)
	for _, name := range ofSalt {
		if v, ok := values.Get(name); ok && v != nil {
			opts.Opts = append(opts.Opts, value.Pair{Key: name, Value: v})
		}
	}
	return opts
}

// Modules returns the folders of the site's own Python modules.
func Modules(o *config.Options) hosted.Folders {
	values, _ := Value(o.Values()).(value.Map)
	return hosted.Folders{
		ExtensionModules: values.String("extension_modules"),
		ModuleDirs:       texts(values, "module_dirs"),
		Own: map[string][]string{
			"modules": texts(values, "module_dirs"), "pillar": texts(values, "pillar_dirs"),
			"runners": texts(values, "runner_dirs"), "wheel": texts(values, "wheel_dirs"),
			"sdb": texts(values, "sdb_dirs"), "tops": texts(values, "top_dirs"),
			"auth": texts(values, "auth_dirs"), "states": texts(values, "states_dirs"),
		},
	}
}

// texts returns an option that is a list of texts.
func texts(m value.Map, name string) []string {
	v, _ := m.Get(name)
	list, _ := v.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
