package config

import (
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

var updateOptions = flag.Bool("update-options", false, "write docs/options.md")

const optionsPage = `# Options

Every option that this master reads, in the file ` + "`/etc/salt/master`" + ` or in ` + "`/etc/salt/master.d`" + `.
Options that Salt doesn't have are marked *own*. Times are in seconds unless the unit says
otherwise. Options with "No effect", and others of Salt's, are taken and ignored, most of them with
a warning, or refused: [differences.md](differences.md) says which. Returners and modules in Python
read options of their own. ` + "`clustermaster config check`" + ` reads a configuration as a start would.

` + "`make references`" + ` writes this page.

| option | default | unit | meaning |
|---|---|---|---|
`

// TestOptionsAreDocumented compares docs/options.md with the options and their meanings.
func TestOptionsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("meanings.txt")
	if err != nil {
		t.Fatal(err)
	}
	type line struct{ unit, meaning string }
	meanings := make(map[string]line)
	for l := range strings.Lines(string(text)) {
		if strings.HasPrefix(l, "#") {
			continue
		}
		cols := strings.Split(strings.TrimSuffix(l, "\n"), "\t")
		if len(cols) != 3 || cols[2] == "" {
			t.Fatalf("meanings.txt: %q is not name, unit and meaning", l)
		}
		meanings[cols[0]] = line{cols[1], cols[2]}
	}
	all, options := maps.Clone(table()), reflect.TypeFor[Options]()
	for _, name := range slices.AppendSeq(slices.Clone(undeclaredSSH), maps.Keys(ofBackEnds)) {
		all[name] = known{field: -1}
	}
	var rows []string
	for name, k := range all {
		why := unusedText(name)
		if k.field < 0 && why != "" {
			continue
		}
		var f reflect.StructField
		if k.field >= 0 {
			f = options.Field(k.field)
		}
		m, ok := meanings[name]
		if !ok {
			t.Errorf("option %s has no line in config/meanings.txt", name)
		}
		delete(meanings, name)
		if f.Type == reflect.TypeFor[time.Duration]() {
			m.unit = "s"
			if u := f.Tag.Get("unit"); u != "" {
				m.unit = map[string]string{"m": "min", "ms": "ms"}[u]
			}
		}
		low, high := f.Tag.Get("min"), f.Tag.Get("max")
		switch {
		case low != "" && high != "":
			m.meaning += "; " + low + " to " + high
		case low != "" && low != "0":
			m.meaning += "; at least " + low
		}
		if words := f.Tag.Get("oneof"); words != "" && k.own {
			m.meaning += "; one of " + words
		}
		if why != "" {
			_, why, _ = strings.Cut(why, ": ")
			m.meaning = "No effect: " + why + ". In Salt: " + m.meaning
		}
		shown := "`" + name + "`"
		if k.own {
			shown += " *own*"
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", shown, shownDefault(k.fallback),
			m.unit, strings.ReplaceAll(m.meaning, "|", "\\|")))
	}
	for name := range meanings {
		t.Errorf("config/meanings.txt has a line for %s, which is no option that has an effect", name)
	}
	slices.Sort(rows)
	want := optionsPage + strings.Join(rows, "")
	path := filepath.Join("..", "docs", "options.md")
	if *updateOptions {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/options.md is not what the options are: run make references")
	}
}

// shownDefault is a default as a configuration has it.
func shownDefault(v any) string {
	if v == nil || v == "" {
		return ""
	}
	switch v := v.(type) {
	case []any:
		return "`" + strings.ReplaceAll(fmt.Sprint(v), " ", ", ") + "`"
	case value.Map:
		var parts []string
		for _, p := range v {
			parts = append(parts, fmt.Sprintf("%v: %s", p.Key, strings.Trim(shownDefault(p.Value), "`")))
		}
		return "`{" + strings.Join(parts, ", ") + "}`"
	}
	return "`" + strings.ReplaceAll(fmt.Sprint(v), "|", "\\|") + "`"
}
