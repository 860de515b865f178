package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// composed are the folders of the tests that run the whole program.
var composed = []string{"commands", "conformance", "e2e", "failover", "faults"}

// Reasons for more than one option.
const (
	onlyChecked = "is only checked at the start; tests of this package show that"
	ofCommand   = "is an option of commands; tests of package cli show that"
	readHere    = "changes other options when files are read; tests of this package show that"
)

// unproven are the options that no test of the whole program sets, and why. Options of salt-ssh are
// missing: salt-ssh is Salt's own code and reads the configuration itself.
var unproven = map[string]string{
	"cluster_encryption_algorithm": "has no effect: traffic between masters is TLS 1.3",
	"cluster_port":                 onlyChecked,
	"conf_file":                    "is what the command line says",
	"discovery":                    onlyChecked,
	"eauth_tokens":                 onlyChecked,
	"eauth_tokens.cache_driver":    onlyChecked,
	"fips_mode":                    onlyChecked,
	"pillar.cache_driver":          onlyChecked,
	"ssl":                          onlyChecked,
	"no_parse":                     "is an option of commands",

	"executor_opts":    ofCommand,
	"force_color":      ofCommand,
	"mktoken":          ofCommand,
	"module_executors": ofCommand,
	"no_color":         ofCommand,
	"progress":         "has no effect",
	"return_config":    ofCommand,
	"return_kwargs":    ofCommand,
	"start_event":      ofCommand,

	"state_output_exclude": ofCommand,
	"state_output_terse":   ofCommand,

	"git_pillar_disable_saltenv_mapping": "has no effect, with Salt neither: a branch decides",

	"append_domain":   readHere,
	"default_include": readHere,
	"keep_jobs":       readHere,
	"log_dir":         readHere,
}

// settings is all that the tests of the whole program write into configurations, and more.
func settings(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range composed {
		err := filepath.WalkDir(filepath.Join("..", "test", dir), func(path string, d fs.DirEntry,
			err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "answers":
				return fs.SkipDir
			case d.IsDir() || !d.Type().IsRegular():
				return nil
			}
			b, err := os.ReadFile(path)
			all.Write(b)
			all.WriteString("\n")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReplacer(`\n`, "\n").Replace(all.String())
}

// TestOptionsAreProven: each option of docs/options.md that has an effect is set by a test of the
// whole program, or unproven says why not. An option that nothing passes on to what uses it is
// found only so.
func TestOptionsAreProven(t *testing.T) {
	t.Parallel()
	set := make(map[string]bool)
	for _, found := range regexp.MustCompile(`(?:^|[^\w.])([a-z][\w.]*):`).FindAllStringSubmatch(
		settings(t), -1) {
		set[found[1]] = true
	}
	for name := range table() {
		reason, excused := unproven[name]
		switch {
		case unusedText(name) != "":
			if excused {
				t.Errorf("%s has no effect, and is in unproven", name)
			}
		case set[name] && excused:
			t.Errorf("%s is set by a test, and is in unproven: %s", name, reason)
		case !set[name] && !excused && !slices.Contains(sshOptions, name):
			t.Errorf("%s is set by no test of %v", name, composed)
		}
	}
	for name := range unproven {
		if _, known := table()[name]; !known {
			t.Errorf("unproven has %s, which is no option", name)
		}
	}
}
