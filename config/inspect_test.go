package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := `id: old
timeout: 7
worker_threads: 9
engines: [{logstash: {}}]
ext_pillar: [{git: []}]
extension_modules: /srv/ext
rest_cherrypy: {port: 8000}
gitfs_remotes: [x]
fileserver_backend: [roots, s3fs]
publisher_acl: {bob: [test.ping]}
keep_jobs: 48
`
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, verdicts, err := Inspect(dir, func(string) string { return "" })
	if err != nil || o.ID != "old" || o.KeepJobsSeconds != 48*3600 {
		t.Fatal(o, err)
	}
	got := make(map[string]Verdict)
	for _, v := range verdicts {
		got[v.Option] = v
	}
	for name, want := range map[string]Fate{
		"id": Works, "timeout": Works, "worker_threads": Works, "engines": Python,
		"ext_pillar": Works, "fileserver_backend": Refused, "extension_modules": Works,
		"rest_cherrypy": Differently, "gitfs_remotes": Differently, "publisher_acl": Works,
		"keep_jobs": Differently,
	} {
		v := got[name]
		if v.Fate != want || v.Line == 0 || want != Works && v.Text == "" {
			t.Errorf("%s: %+v, want %s", name, v, want)
		}
	}
	if _, _, err := Inspect(filepath.Join(dir, "master"),
		func(string) string { return "" }); err == nil {
		t.Error("a file as folder is read")
	}
}

// TestInspectPython: without a Python that has Salt, its modules are named with the remedy, and
// those that are built in are not.
func TestInspectPython(t *testing.T) {
	for text, named := range map[string]string{
		"ext_pillar: [{cmd_yaml: cat x}, {stack: /srv/stack.cfg}]\n":     `"stack"`,
		"master_tops: {ext_nodes: x, saltclass: {path: /srv/classes}}\n": `"saltclass"`,
		"ext_pillar: [{cmd_yaml: cat x}, {nodegroups: x}]\n":             "",
		"master_tops: {ext_nodes: x}\n":                                  "",
	} {
		for host, remedy := range map[string]string{"none": "name an interpreter there that has Salt",
			"": "install the package salt-common (rpm: salt), or name"} {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			option, _, _ := strings.Cut(text, ":")
			if err := os.WriteFile(filepath.Join(dir, "master"),
				[]byte(text+"python_host: '"+host+"'\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, verdicts, err := Inspect(dir, func(string) string { return "" })
			if err != nil {
				t.Fatal(err)
			}
			want := Works
			if named != "" {
				want = Python
			}
			for _, v := range verdicts {
				if v.Option == option && (v.Fate != want || named != "" &&
					(!strings.Contains(v.Text, named) || !strings.Contains(v.Text, remedy) ||
						strings.Contains(v.Text, "ext_nodes") ||
						strings.Contains(v.Text, "cmd_yaml"))) {
					t.Errorf("%s with python_host %q: %+v, want %s %s", text, host, v, want, remedy)
				}
			}
		}
	}
}
