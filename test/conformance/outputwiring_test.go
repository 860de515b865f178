package conformance

import (
	"fmt"
	"regexp"
	"testing"
)

var outputFiles = map[string]string{
	"srv/two.sls":   "same: {test.nop: []}\nother: {test.succeed_with_changes: []}\n",
	"srv/names.sls": "several: {test.succeed_with_changes: [{names: [a, b, c]}]}\n",
	"theme":         "YELLOW: \"1;35\"\nGREEN: \"1;36\"\nENDC: \"0;0\"\n",
}

// outputWiring has options of how results are printed.
func outputWiring() wiring {
	return wiring{
		name: "outputs",
		set: `output_indent: 2
state_output_pct: True
state_output_profile: False
state_output_diff: True
state_compress_ids: True
color_theme: DIR/theme
`,
		files: outputFiles,
		looks: []wired{
			{options: "output_indent", ask: func(t *testing.T, m *subject) string {
				return m.Runner(t, "--out=json", "test.arg", "a", "b=c").Stdout
			}},
			{options: "color_theme", ask: func(t *testing.T, m *subject) string {
				return fmt.Sprintf("%q", m.Runner(t, "--force-color", "test.arg", "a").Stdout)
			}},
			orchestrated("state_output_pct", "two", linesWith("%")),
			orchestrated("state_output_profile", "two", linesWith("Started: ", "Duration: ")),
			orchestrated("state_output_diff", "two", linesWith("ID: ")),
			orchestrated("state_compress_ids", "names", linesWith("ID: ", "Name: ")),
		},
	}
}

// tableWiring has an option of the terse output.
func tableWiring() wiring {
	spaces := regexp.MustCompile(` {2,}`)
	return wiring{
		name:  "tables",
		both:  "state_output: terse\n",
		set:   "state_tabular: True\n",
		files: outputFiles,
		looks: []wired{orchestrated("state_tabular", "two", func(text string) string {
			return spaces.ReplaceAllString(linesWith("Name: ", "test.")(text), "  ")
		})},
	}
}

// rendererWiring has options of which renderers may be used, and of what can't be decrypted.
func rendererWiring() wiring {
	const sealed = "-----BEGIN PGP MESSAGE-----\n\n    bm90IGEgbWVzc2FnZQ==\n    -----END PGP MESSAGE-----"
	return wiring{
		name: "renderers",
		both: "pillar_roots: {base: [DIR/pillar]}\n",
		set: `renderer_blacklist: [json]
renderer_whitelist: [jinja, yaml, json, gpg]
gpg_decrypt_must_succeed: False
`,
		files: map[string]string{
			"pillar/top.sls":    "base: {black: [black], white: [white], sealed: [sealed]}\n",
			"pillar/black.sls":  "#!json\n{\"v\": 1}\n",
			"pillar/white.sls":  "#!py\ndef run(): return {'v': 1}\n",
			"pillar/sealed.sls": "#!yaml|gpg\nv: |\n    " + sealed + "\n",
		},
		looks: []wired{
			firstLines(pillarKey("renderer_blacklist", "black", "v")),
			firstLines(pillarKey("renderer_whitelist", "white", "v")),
			firstLines(pillarKey("gpg_decrypt_must_succeed", "sealed", "v")),
		},
	}
}
