package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"clustermaster/value/yaml11"
)

// sources is all Go code outside this package and its tests.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		own := filepath.Dir(path) == filepath.Join("..", "config")
		if !own && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all.Write(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []string{"check.go", "cluster.go", "load.go", "source.go", "values.go",
		"logging.go", "reactor.go", "schedule.go", "git.go", "ssh.go"} {
		b, err := os.ReadFile(own)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	return all.String()
}

// TestNoOptionIsSilent walks all options of Salt's and of ours: each is used by some code, or
// setting it causes a warning or a refusal.
func TestNoOptionIsSilent(t *testing.T) {
	t.Parallel()
	code := sources(t)
	paths, err := os.ReadFile("paths.go") // gives values to options that nobody may use
	if err != nil {
		t.Fatal(err)
	}
	fields := reflect.TypeFor[Options]()
	counts := map[string]int{}
	for name, k := range table() {
		usedByField := k.field >= 0 && strings.Contains(code, "."+fields.Field(k.field).Name)
		usedByName := servedElsewhere[name] && strings.Contains(code+string(paths), `"`+name+`"`)
		text := unusedText(name)
		switch {
		case (usedByField || usedByName) && text != "":
			t.Errorf("%s is used, and said not to be: %s", name, text)
		case usedByField, usedByName:
			counts["used"]++
		case text != "":
			counts["warned"]++
		default:
			t.Errorf("%s is neither used nor said not to be", name)
		}
	}
	for _, l := range unusedLines() {
		if unusedTexts[l.class] == "" {
			t.Errorf("unused.tsv: class %q of %s has no text", l.class, l.pattern)
		}
		hit := false
		for name := range table() {
			hit = hit || name == l.pattern || strings.HasSuffix(l.pattern, "*") &&
				strings.HasPrefix(name, l.pattern[:len(l.pattern)-1])
		}
		if !hit {
			t.Errorf("unused.tsv: %s is no option", l.pattern)
		}
	}
	t.Logf("options: %v", counts)
}

// TestUnusedOptionsAreNamed sets each of them.
func TestUnusedOptionsAreNamed(t *testing.T) {
	t.Parallel()
	for name, k := range table() {
		text := unusedText(name)
		if text == "" {
			continue
		}
		value := ""
		for _, v := range []string{"'odd'", "77", "77.5", "[odd]", "{odd: 1}", "True", "False"} {
			x, err := yaml11.Load([]byte(v))
			if err != nil {
				t.Fatal(err)
			}
			if conform(k.types, x) == nil && !reflect.DeepEqual(x, k.fallback) {
				value = v
				break
			}
		}
		if value == "" {
			t.Errorf("%s: no value to try", name)
			continue
		}
		if _, got := loadText(t, "id: m\n"+name+": "+value+"\n"); !strings.Contains(got,
			": "+name+": ") {
			t.Errorf("%s: %s is taken without a word\n%s", name, value, got)
		}
	}
}

// TestUndeclaredOptions: options that Salt reads without declaring them are known.
func TestUndeclaredOptions(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"gpg_keydir: /srv/keys":   "",
		"allow_undefined: True":   "",
		"batch_safe_limit: 100":   "",
		"allow_undefined: always": "allow_undefined: is the text \"always\"; True or False is needed",
	} {
		if _, got := loadText(t, "id: m\n"+line+"\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %s", line, got)
		}
	}
}

func TestKeepJobs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"keep_jobs: 48\n": 48 * 3600, "keep_jobs: 48\nkeep_jobs_seconds: 60\n": 60,
		"keep_jobs: 0\n": 0, "keep_jobs: 24\n": 86400,
		"keep_jobs: 48\nkeep_jobs_seconds: 86400\n": 48 * 3600,
	} {
		o, got := loadText(t, text)
		if o == nil || o.KeepJobsSeconds != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// TestReadOptionsAreKnown: an option that some code reads by its name is not called unknown.
func TestReadOptionsAreKnown(t *testing.T) {
	t.Parallel()
	found := regexp.MustCompile(`\bExtra\["([a-z_.]+)"\]`).FindAllStringSubmatch(sources(t), -1)
	if len(found) < 10 {
		t.Fatalf("only %d options are read by name", len(found))
	}
	for _, m := range found {
		if _, known := table()[m[1]]; !known && !ofBackEnds[m[1]] {
			t.Errorf("%s is read, and its warning says that it is unknown", m[1])
		}
	}
}

func TestMastersFigures(t *testing.T) {
	t.Parallel()
	_, got := loadText(t, "id: m\nmaster_stats: True\nmaster_stats_event_iter: 30\n")
	if strings.Count(got, "(metrics_listen)") != 2 || strings.Contains(got, "option of minions") {
		t.Error(got)
	}
}
