package conformance

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/test/sshtest"
	"clustermaster/value"
)

// refs makes a repository below the master's folder: each ref has a commit whose files name it.
func refs(t *testing.T, m *subject, name string, files map[string]string, names ...string) {
	t.Helper()
	r := repo(filepath.Join(m.Dir, name))
	if err := os.Mkdir(string(r), 0o755); err != nil {
		t.Fatal(err)
	}
	r.git(t, "init", "-q", "-b", "work")
	for _, ref := range names {
		for file, text := range files {
			m.write(t, strings.ReplaceAll(text, "REF", ref), name, file)
		}
		r.git(t, "add", "-A")
		r.git(t, "commit", "-q", "-m", ref, "--no-gpg-sign")
		r.git(t, "update-ref", ref, "HEAD")
	}
	r.git(t, "checkout", "-q", "--detach")
	r.git(t, "branch", "-q", "-D", "work")
}

// fromGit asks for a file of an environment that comes from git, once the remotes are fetched.
func fromGit(options, env, path string) wired {
	return wired{options: options, ask: func(t *testing.T, m *subject) string {
		c := m.signIn(t, "reads", 3)
		fetched(t, c)
		return say(t, m, c.request(t, "_serve_file", pair("path", path), pair("loc", int64(0)),
			pair("saltenv", env)))
	}}
}

// fetched waits until the environment dev, which all configurations have, has files.
func fetched(t *testing.T, c *client) {
	t.Helper()
	var files any
	if !endsWithin(time.Minute, func() bool {
		files = c.request(t, "_file_list", pair("saltenv", "dev"), pair("prefix", ""))
		list, _ := files.([]any)
		return len(list) > 0
	}) {
		t.Errorf("the environment dev is not served: %v", files)
	}
}

func environments(options string) wired {
	return wired{options: options, ask: func(t *testing.T, m *subject) string {
		c := m.signIn(t, "reads", 3)
		fetched(t, c)
		var envs []string
		list, _ := c.request(t, "_file_envs").([]any)
		for _, env := range list {
			envs = append(envs, fmt.Sprint(env))
		}
		slices.Sort(envs)
		return fmt.Sprint(envs)
	}}
}

const gitfsPlain = `fileserver_backend: [gitfs]
gitfs_provider: gitpython
gitfs_update_interval: 1
gitfs_remotes: ['file://DIR/states']
`

func stateRefs(t *testing.T, m *subject) {
	refs(t, m, "states", map[string]string{"at": "top of REF", "salt/at": "salt of REF"},
		"refs/heads/master", "refs/heads/trunk", "refs/heads/dev", "refs/heads/secret",
		"refs/heads/other", "refs/tags/v1", "refs/review/one")
}

// gitPlaceWiring has options that say what of a repository is served, and as what.
func gitPlaceWiring() wiring {
	return wiring{
		name: "gitplaces",
		both: gitfsPlain,
		set: `gitfs_base: trunk
gitfs_root: salt
gitfs_mountpoint: salt://site
gitfs_saltenv: [{prod: [{ref: other}]}]
gitfs_saltenv_whitelist: [base, dev, prod, secret, one, v1, absent]
gitfs_saltenv_blacklist: [secret]
gitfs_ref_types: [branch]
gitfs_refspecs: ['+refs/heads/*:refs/remotes/origin/*', '+refs/review/*:refs/remotes/origin/*']
gitfs_fallback: dev
`,
		prepare: stateRefs,
		looks: []wired{
			fromGit("gitfs_base", "base", "site/at"),
			fromGit("gitfs_root gitfs_mountpoint", "dev", "site/at"),
			fromGit("gitfs_mountpoint", "dev", "at"),
			fromGit("gitfs_saltenv", "prod", "site/at"),
			fromGit("gitfs_refspecs", "one", "site/at"),
			fromGit("gitfs_ref_types", "v1", "at"),
			fromGit("gitfs_fallback", "absent", "site/at"),
			environments("gitfs_saltenv_whitelist gitfs_saltenv_blacklist gitfs_ref_types"),
		},
	}
}

// gitMapWiring serves mapped environments only.
func gitMapWiring() wiring {
	return wiring{
		name:    "gitmapping",
		both:    gitfsPlain,
		set:     "gitfs_disable_saltenv_mapping: True\ngitfs_saltenv: [{dev: [{ref: other}]}]\n",
		prepare: stateRefs,
		looks: []wired{
			environments("gitfs_disable_saltenv_mapping"), fromGit("gitfs_saltenv", "dev", "at"),
		},
	}
}

// inPillar asks for a key of a pillar from git; "" means no pillarenv.
func inPillar(options, env, key string) wired {
	var more []value.Pair
	if env != "" {
		more = append(more, pair("pillarenv", env))
	}
	return pillarKey(options, "asks", key, more...)
}

const gitPillarPlain = `git_pillar_provider: gitpython
git_pillar_update_interval: 1
ext_pillar: [{git: ['file://DIR/fixed', __env__ file://DIR/moves]}]
`

func pillarRefs(t *testing.T, m *subject) {
	for _, name := range []string{"fixed", "moves"} {
		top := ""
		for _, env := range []string{"base", "dev", "one", "v1", "absent"} {
			top += env + ": {'*': [" + name + "]}\n"
		}
		files := map[string]string{"top.sls": top, "sub/top.sls": top,
			name + ".sls": name + ": top of REF\n", "sub/" + name + ".sls": name + ": sub of REF\n"}
		if name == "fixed" {
			files["fixed.sls"] = "include: [lib]\n" + files["fixed.sls"]
		} else {
			files["lib.sls"] = "lib: included\n"
		}
		refs(t, m, name, files, "refs/heads/master", "refs/heads/trunk", "refs/heads/dev",
			"refs/heads/other", "refs/tags/v1", "refs/review/one")
	}
}

// gitPillarWiring has options that say which part of a repository is a pillar.
func gitPillarWiring() wiring {
	return wiring{
		name: "gitpillar",
		both: gitPillarPlain,
		set: `git_pillar_branch: trunk
git_pillar_root: sub
git_pillar_base: trunk
git_pillar_fallback: other
git_pillar_ref_types: [branch]
git_pillar_refspecs: ['+refs/heads/*:refs/remotes/origin/*', '+refs/review/*:refs/remotes/origin/*']
`,
		prepare: pillarRefs,
		looks: []wired{
			inPillar("git_pillar_branch git_pillar_root", "", "fixed"),
			inPillar("git_pillar_base git_pillar_root", "", "moves"),
			inPillar("git_pillar_root", "dev", "moves"),
			inPillar("git_pillar_refspecs", "one", "moves"),
			inPillar("git_pillar_ref_types", "v1", "moves"),
			inPillar("git_pillar_fallback", "absent", "moves"),
		},
	}
}

// gitPillarAloneWiring keeps each repository to itself.
func gitPillarAloneWiring() wiring {
	return wiring{
		name:    "gitpillaralone",
		both:    gitPillarPlain,
		set:     "git_pillar_includes: False\n",
		prepare: pillarRefs,
		looks:   []wired{inPillar("git_pillar_includes", "", "lib")},
	}
}

// gitPillarEnvWiring has one environment for all branches.
func gitPillarEnvWiring() wiring {
	return wiring{
		name:    "gitpillarenv",
		both:    gitPillarPlain,
		set:     "git_pillar_env: dev\n",
		prepare: pillarRefs,
		looks:   []wired{inPillar("git_pillar_env", "dev", "fixed")},
	}
}

// TestNewBranches asks for pillars from git right after a master's start, and from branches made
// after that, long before the remotes are due to be fetched again.
func TestNewBranches(t *testing.T) {
	t.Parallel()
	made := func(t *testing.T, m *subject) string {
		repo(m.path("moves")).git(t, "branch", "absent", "dev")
		return inPillar("", "absent", "moves").ask(t, m)
	}
	w := wiring{
		name:    "branches",
		both:    strings.Replace(gitPillarPlain, "update_interval: 1", "update_interval: 3600", 1),
		prepare: pillarRefs,
		looks: []wired{
			inPillar("fixed", "", "fixed"), inPillar("moves", "", "moves"), inPillar("absent", "absent", "moves"),
			{options: "made", ask: made}, inPillar("dev", "dev", "moves"),
			{options: "many", ask: manyBranches, own: true},
		},
	}
	got := map[kind][]string{}
	for _, k := range kinds() {
		got[k] = w.looked(t, k, true)
	}
	var asked []string
	for _, l := range w.looks {
		if !l.own {
			asked = append(asked, l.options)
		}
	}
	for i, want := range saltsText(t, "git_branches", w.both, asked, got) {
		if ours := got[ours][i]; ours != want {
			t.Errorf("%s:\nours   %s\nSalt's %s", asked[i], ours, want)
		}
	}
}

// manyBranches has a minion ask for pillars from branches that do not exist, as one that was
// compromised would. Each of them makes Salt's master fetch.
func manyBranches(t *testing.T, m *subject) string {
	c, began, before := m.signIn(t, "asks", 3), time.Now(), m.counters(t)["git_fetches_total"]
	for i := range 50 {
		if _, err := c.pillar(t, pair("pillarenv", fmt.Sprint("nosuch", i))); err != nil {
			t.Fatal(err)
		}
	}
	most := 6 + int(time.Since(began)/(5*time.Second))
	if n := m.counters(t)["git_fetches_total"] - before; n < 1 || n > most {
		t.Errorf("%d fetches, at most %d", n, most)
	}
	return ""
}

// gitPasswordWiring has options of the way to remotes over http: a proxy that wants passwords.
func gitPasswordWiring() wiring {
	asked := new(requests)
	return wiring{
		name: "gitpassword",
		both: `fileserver_backend: [gitfs]
gitfs_update_interval: 1
git_pillar_update_interval: 1
gitfs_remotes: ['http://files.example/x.git']
ext_pillar: [{git: ['master http://pillar.example/x.git']}]
`,
		set: `gitfs_user: files
gitfs_password: one
gitfs_insecure_auth: True
git_pillar_user: pillar
git_pillar_password: two
git_pillar_insecure_auth: True
gitfs_proxy: PROXY
git_pillar_proxy: PROXY
`,
		prepare: func(t *testing.T, m *subject) {
			asked.clear()
			proxy := httptest.NewServer(http.HandlerFunc(asked.answer))
			t.Cleanup(proxy.Close)
			m.replace(t, "PROXY", proxy.URL)
		},
		looks: []wired{
			asked.has("gitfs_proxy", "files.example", ""),
			asked.has("git_pillar_proxy", "pillar.example", ""),
			asked.has("gitfs_user gitfs_password gitfs_insecure_auth",
				"files.example", " as \"files\" \"one\""),
			asked.has("git_pillar_user git_pillar_password git_pillar_insecure_auth",
				"pillar.example", " as \"pillar\" \"two\""),
		},
	}
}

// gitKeyWiring has options of the way to remotes over https, with a certificate that nobody vouches
// for, and over ssh, with a key that has a passphrase.
func gitKeyWiring() wiring {
	asked := new(requests)
	return wiring{
		name: "gitkeys",
		both: `fileserver_backend: [gitfs]
gitfs_update_interval: 1
git_pillar_update_interval: 1
git_known_hosts: DIR/known
gitfs_remotes: [WEB/files.git, FAR]
ext_pillar: [{git: [master WEB/pillar.git, master FAR]}]
`,
		set: `gitfs_ssl_verify: False
gitfs_privkey: DIR/key
gitfs_pubkey: DIR/key.pub
gitfs_passphrase: word
git_pillar_ssl_verify: False
git_pillar_privkey: DIR/key
git_pillar_pubkey: DIR/key.pub
git_pillar_passphrase: word
`,
		prepare: func(t *testing.T, m *subject) {
			asked.clear()
			web := httptest.NewTLSServer(http.HandlerFunc(asked.answer))
			web.Config.ErrorLog = log.New(io.Discard, "", 0)
			t.Cleanup(web.Close)
			srv := sshtest.Start(t, "127.91.16.2")
			key := srv.Accepts(t, "key", "word")
			for _, end := range []string{"", ".pub"} {
				if err := os.WriteFile(filepath.Join(m.Dir, "key"+end), readFile(t, key+end), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m.write(t, string(readFile(t, srv.Known(t, "hosts", filepath.Join(srv.Dir, "host")))), "known")
			refs(t, m, "far", map[string]string{
				"at": "REF", "top.sls": "base: {'*': [far]}\n", "far.sls": "far: REF\n",
			}, "refs/heads/master")
			far := fmt.Sprintf("ssh://%s@%s:%d%s/far", srv.User, srv.Addr, srv.Port, m.Dir)
			m.replace(t, "WEB", web.URL)
			m.replace(t, "FAR", far)
		},
		looks: []wired{
			asked.has("gitfs_ssl_verify", "/files.git", ""),
			asked.has("git_pillar_ssl_verify", "/pillar.git", ""),
			{options: "gitfs_privkey gitfs_pubkey gitfs_passphrase", own: true,
				ask: func(t *testing.T, m *subject) string {
					c := m.signIn(t, "reads", 3)
					return m.soon(t, func() bool { return c.served(t, "at") != "" })
				}},
			{options: "git_pillar_privkey git_pillar_pubkey git_pillar_passphrase", own: true,
				ask: func(t *testing.T, m *subject) string {
					return m.soon(t, func() bool {
						p, err := m.pillarOf(t, "asks")
						return err == nil && p.String("far") != ""
					})
				}},
		},
	}
}

// soon waits until a remote's files are there, or ssh has refused the key.
func (m *subject) soon(t *testing.T, there func() bool) string {
	t.Helper()
	ended := endsWithin(25*time.Second, func() bool {
		return there() || strings.Contains(string(readFile(t, m.Log)), "privkey")
	})
	return fmt.Sprintf("there: %t, ended: %t", there(), ended)
}

// replace puts a text that the test knows only now into the configuration.
func (m *subject) replace(t *testing.T, name, text string) {
	t.Helper()
	m.Configure(t, strings.ReplaceAll(m.Config(t), name, text))
}

// requests are what a server was asked.
type requests struct {
	mu   sync.Mutex
	seen []string
}

func (r *requests) answer(w http.ResponseWriter, req *http.Request) {
	user, password, _ := req.BasicAuth()
	r.mu.Lock()
	r.seen = append(r.seen, fmt.Sprintf("%s as %q %q %s", req.Host, user, password, req.URL.Path))
	r.mu.Unlock()
	w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
	w.WriteHeader(http.StatusUnauthorized)
}

func (r *requests) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// has looks, once the fetch of a remote has failed, whether the server was asked for it, with what
// follows it. No server here has a repository.
func (r *requests) has(options, remote, follows string) wired {
	return wired{options: options, own: true, ask: func(t *testing.T, m *subject) string {
		failed := regexp.MustCompile(regexp.QuoteMeta(remote) + ".* can't be updated")
		if !endsWithin(time.Minute, func() bool { return failed.Match(readFile(t, m.Log)) }) {
			t.Errorf("the log does not say that %s can't be updated", remote)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Sprint("asked: ", slices.ContainsFunc(r.seen, func(s string) bool {
			return strings.Contains(s, remote+follows)
		}))
	}}
}
