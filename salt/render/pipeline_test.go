package render

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"clustermaster/value"
)

func unhosted(string) bool { return false }

func TestPipeline(t *testing.T) {
	t.Parallel()
	barred := object("renderer_blacklist", []any{"py"})
	only := object("renderer_whitelist", []any{"yaml"})
	for _, tt := range []struct {
		text string
		opts value.Map
		want []stage
		err  string
	}{
		{text: "a: 1", want: []stage{{"jinja", ""}, {"yaml", ""}}},
		{text: "#!yaml\na: 1", want: []stage{{"yaml", ""}}},
		{text: "#! yaml | gpg \r\n", want: []stage{{"yaml", ""}, {"gpg", ""}}},
		{text: "#!jinja -s|yaml -o x", want: []stage{{"jinja", "-s"}, {"yaml", "-o x"}}},
		{text: "#!yaml_jinja\n", want: []stage{{"jinja", ""}, {"yaml", ""}}},
		{text: "#!/bin/sh\n", want: []stage{{"jinja", ""}, {"yaml", ""}}},
		{text: "\n#!py\n", want: []stage{{"jinja", ""}, {"yaml", ""}}},
		{text: "#!mako|yaml\n", err: `The renderer "mako" of /srv/pillar/t.sls is not available`},
		{text: "#!\n", err: `The renderer "" of /srv/pillar/t.sls is not available`},
		{text: "#!py|yaml\n", opts: barred, want: []stage{{"yaml", ""}}},
		{text: "#!py\n", opts: barred, err: "allow no renderer of \"py\" for /srv/pillar/t.sls"},
		{text: "a: 1", opts: only, want: []stage{{"yaml", ""}}},
	} {
		got, err := pipeline(source("t", tt.text), "jinja|yaml", tt.opts, unhosted)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: error %v, want %q", tt.text, err, tt.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: got %v, %v; want %v", tt.text, got, err, tt.want)
		}
	}
}

// FuzzPipeline: whatever the first line says, the pipeline consists of known renderers.
func FuzzPipeline(f *testing.F) {
	for _, seed := range []string{"a: 1", "#!yaml|gpg", "#!jinja -s | yaml\n", "#!|||", "#! \x00",
		"#!yaml_jinja"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := pipeline(source("t", text), "jinja|yaml", nil, unhosted)
		if (err == nil) == (len(got) == 0) {
			t.Fatalf("got %v, %v", got, err)
		}
		for _, s := range got {
			if !slices.Contains(renderers, s.name) {
				t.Fatalf("renderer %q", s.name)
			}
		}
	})
}
