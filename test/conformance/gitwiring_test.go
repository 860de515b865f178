package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/test/sshtest"
	"clustermaster/value"
)

// repo is a git repository whose commits a key signs.
type repo string

func newRepo(t *testing.T, key string) repo {
	t.Helper()
	r := repo(t.TempDir())
	r.git(t, "init", "-q", "-b", "master")
	r.git(t, "config", "gpg.format", "ssh")
	r.git(t, "config", "user.signingkey", key)
	return r
}

func (r repo) git(t *testing.T, args ...string) {
	t.Helper()
	e2e.Git(t, string(r), args...)
}

// commit writes a file and commits it.
func (r repo) commit(t *testing.T, name, text string, signed bool) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(r), name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r.git(t, "add", "-A")
	sign := "--no-gpg-sign"
	if signed {
		sign = "--gpg-sign"
	}
	r.git(t, "commit", "-q", "-m", text, sign)
}

// served is the text of a file that the master serves to a minion, "" if it serves none.
func (c *client) served(t *testing.T, path string) string {
	t.Helper()
	reply, _ := c.request(t, "_serve_file", pair("path", path), pair("loc", int64(0)),
		pair("saltenv", "base")).(value.Map)
	data, _ := reply.Get("data")
	switch data := data.(type) {
	case []byte:
		return string(data)
	case string:
		return data
	}
	return ""
}

// gitWiring has options of gitfs, with a real server of ssh.
func gitWiring() wiring {
	var jobs repo
	return wiring{
		name: "git",
		both: "fileserver_backend: [git]\ngitfs_update_interval: 1\ngit_job_functions: ['test.*']\n",
		set: `git_allowed_signers: DIR/signers
git_known_hosts: DIR/known
git_job_limit: 1
`,
		prepare: func(t *testing.T, m *subject) {
			srv := sshtest.Start(t, "127.91.16.1")
			key := srv.Accepts(t, "key", "")
			m.write(t, "a@example.org "+string(readFile(t, key+".pub")), "signers")
			m.write(t, string(readFile(t, srv.Known(t, "hosts", filepath.Join(srv.Dir, "host")))), "known")
			mixed, far := newRepo(t, key), newRepo(t, key)
			jobs = newRepo(t, key)
			mixed.commit(t, "mixed", "signed", true)
			mixed.commit(t, "mixed", "not signed", false)
			far.commit(t, "far", "over ssh", true)
			jobs.commit(t, "job", "before", true)
			m.Configure(t, m.Config(t)+fmt.Sprintf("gitfs_remotes:\n  - file://%s\n  - file://%s\n"+
				"  - ssh://%s@%s:%d%s: [{pubkey: %s.pub}, {privkey: %[7]s}]\n",
				mixed, jobs, srv.User, srv.Addr, srv.Port, far, key))
		},
		looks: []wired{
			{options: "git_allowed_signers", own: true, ask: func(t *testing.T, m *subject) string {
				c := m.signIn(t, "reads", 3)
				endsWithin(25*time.Second, func() bool { return c.served(t, "mixed") == "not signed" })
				return c.served(t, "mixed")
			}},
			{options: "git_known_hosts", own: true, ask: func(t *testing.T, m *subject) string {
				c := m.signIn(t, "reads", 3)
				return fmt.Sprint("fetched: ", endsWithin(25*time.Second, func() bool {
					return c.served(t, "far") == "over ssh"
				}))
			}},
			{options: "git_job_limit", own: true, ask: func(t *testing.T, m *subject) string {
				keeps, reads := m.signIn(t, "keeps", 3), m.signIn(t, "reads", 3)
				order(t, m, "keeps") // it does not return
				jobs.commit(t, "job", "after", true)
				if !endsWithin(time.Minute, func() bool { return reads.served(t, "job") == "after" }) {
					t.Error("the next commit is not served")
				}
				return fmt.Sprint("ended: ", endsWithin(25*time.Second, func() bool {
					return keeps.served(t, "job") == "after"
				}))
			}},
		},
	}
}
