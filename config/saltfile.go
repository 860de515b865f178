package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// Saltfile returns the section of a program in a Saltfile: defaults of its options by their long
// names, with _ for -. It reads the file at path. If path is "", it reads the file that
// SALT_SALTFILE names; without that, ./Saltfile or ~/.salt/Saltfile. Without any file the section
// is empty. The errors' texts are those of Salt's parser of options.
func Saltfile(path, program string, getenv func(string) string) (value.Map, error) {
	if path == "" {
		path = getenv("SALT_SALTFILE")
	}
	if path == "" {
		for _, candidate := range []string{"Saltfile",
			filepath.Join(getenv("HOME"), ".salt", "Saltfile")} {
			if info, err := os.Stat(candidate); err == nil && info.Mode().IsRegular() {
				path = candidate
				break
			}
		}
	}
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("'" + path + "' file does not exist.\n")
	}
	doc, err := yaml11.Load(text)
	if err != nil {
		return nil, fmt.Errorf("can't read Saltfile %s: %w", path, err)
	}
	programs, _ := doc.(value.Map)
	section, _ := programs.Get(program)
	settings, _ := section.(value.Map)
	return settings, nil
}
