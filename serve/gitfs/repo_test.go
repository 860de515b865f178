package gitfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repo is a repository of a test, with commits that have the same ids at each run.
type repo struct {
	t   testing.TB
	dir string
}

func newRepo(t testing.TB) *repo {
	t.Helper()
	r := &repo{t, filepath.Join(t.TempDir(), "repo")}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git("init", "-q", "-b", "master")
	return r
}

// git runs the installed git in the repository.
func (r *repo) git(args ...string) string { return r.pipe("", args...) }

func (r *repo) pipe(stdin string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org",
		"GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org",
		"GIT_COMMITTER_DATE=2026-01-02T03:04:05Z",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// write puts files into the work tree: a content that begins with "-> " makes a link, "x " an
// executable.
func (r *repo) write(files map[string]string) {
	r.t.Helper()
	for name, text := range files {
		full := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			r.t.Fatal(err)
		}
		_ = os.Remove(full)
		var err error
		if to, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(to, full)
		} else {
			mode := os.FileMode(0o644)
			if strings.HasPrefix(text, "x ") {
				mode = 0o755
			}
			err = os.WriteFile(full, []byte(text), mode)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// commit commits the work tree and returns the id.
func (r *repo) commit(text string) string {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", text)
	return r.git("rev-parse", "HEAD")
}

// sample makes a repository with branches, tags, folders, links and a submodule.
func sample(t testing.TB) (r *repo, ids map[string]string) {
	t.Helper()
	r = newRepo(t)
	ids = make(map[string]string)
	r.write(map[string]string{
		"top.sls": "base:\n  '*':\n    - web\n", "web/init.sls": "web: {}\n",
		"web/files/conf":   "port 80\n",
		"web/files/run.sh": "x #!/bin/sh\n", "states/app/init.sls": "app: master\n",
		"states/app/deep/er/x.txt": "x\n",
		"link":                     "-> top.sls", "web/link2": "-> ../link",
		"web/dirlink": "-> files",
		"out":         "-> ../../etc/passwd",
		"abs":         "-> /top.sls", "loop": "-> loop", "dangling": "-> nothing",
		"states/up":           "-> ../top.sls",
		"näme with space.txt": "ü\n", "empty": "",
		"big.bin": strings.Repeat("0123456789abcdef\x00", 10_000),
	})
	ids["first"] = r.commit("first")
	r.git("tag", "v0.1")
	r.git("tag", "-a", "-m", "annotated", "v1.0")
	r.write(map[string]string{"web/init.sls": "web: {changed: true}\n", "second": "2\n"})
	r.pipe("160000 commit "+ids["first"]+"\tsubmodule\n", "update-index", "--add", "--index-info")
	r.git("commit", "-q", "-am", "second")
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "second, all of it")
	ids["second"] = r.git("rev-parse", "HEAD")
	r.git("checkout", "-q", "-b", "dev")
	r.write(map[string]string{"dev.txt": "dev\n", "states/app/init.sls": "app: dev\n"})
	ids["dev"] = r.commit("dev")
	r.git("checkout", "-q", "-b", "feature/x", "master")
	r.write(map[string]string{"feature.txt": "feature\n"})
	ids["feature"] = r.commit("feature")
	r.git("checkout", "-q", "-b", "qa", "master")
	r.git("rm", "-q", "-r", "states")
	ids["qa"] = r.commit("qa")
	r.git("checkout", "-q", "-b", "1234", "master")
	r.write(map[string]string{"hex": "a branch whose name is hexadecimal\n"})
	ids["hex"] = r.commit("hex")
	r.git("checkout", "-q", "master")
	return r, ids
}
