package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"clustermaster/value"
)

// testdata/scenarios.json comes from the real Salt (testdata/scenarios.py).
func TestLoadIsSalts(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/scenarios.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Name  string
		Files map[string]string
		Want  map[string]any
	}
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			path := writeTree(t, r.Files)
			s := source{}
			if err := s.read(path); err != nil {
				t.Fatal(err)
			}
			o := &Options{ConfFile: path, Extra: map[string]any{}, origins: s.origins}
			l := &loader{o: o}
			l.aliases(&s)
			l.fill(s.values)
			o.paths(host{name: "box", user: "root"})
			for _, p := range l.problems {
				t.Errorf("refused: %v", p)
			}
			for name, want := range r.Want {
				if got := asJSON(t, o, name); !reflect.DeepEqual(got, want) {
					t.Errorf("%s = %#v, Salt has %#v", name, got, want)
				}
			}
		})
	}
}

func writeTree(t *testing.T, files map[string]string) (master string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "master")
}

// asJSON is an option as the script wrote Salt's value.
func asJSON(t *testing.T, o *Options, name string) any {
	t.Helper()
	fields := reflect.ValueOf(o).Elem()
	for i := range fields.NumField() {
		f := fields.Type().Field(i)
		if f.Tag.Get("opt") == name || f.Name == "TokenDir" && name == "token_dir" ||
			f.Name == "SyndicDir" && name == "syndic_dir" {
			return plain(fields.Field(i).Interface())
		}
	}
	t.Fatalf("no field for %s", name)
	return nil
}

func plain(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil // Salt's None and empty text are one here
		}
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case time.Duration:
		return v.Seconds()
	case []string:
		list := []any{}
		for _, s := range v {
			list = append(list, s)
		}
		return list
	case []any:
		list := []any{}
		for _, x := range v {
			list = append(list, plain(x))
		}
		return list
	case value.Map:
		m := map[string]any{}
		for _, e := range v {
			m[fmt.Sprint(e.Key)] = plain(e.Value)
		}
		return m
	case Roots:
		m := map[string]any{}
		for _, e := range v {
			m[e.Name] = plain(e.Dirs)
		}
		return m
	}
	return v
}
