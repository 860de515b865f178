package config

import (
	"os"
	"path/filepath"
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
