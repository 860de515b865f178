package commands

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// externalOptions are the users of external_auth of both masters.
const externalOptions = `sharedsecret: open-sesame
external_auth:
  file:
    ^filename: DIR/users
    frank:
      - test.version
      - web-a:
        - test.echo
        - test.arg:
            args: ['one.*']
            kwargs: {a: null}
      - 'G@id:web-b':
        - test.ping
    dev1: ['.*', '@runner', '@wheel']
    'ops[0-9]': ['test.ping']
    grace: ['@jobs', '@key', {'@test': ['arg']}]
    heidi: [{'@runners': ['test\.arg.*', 'jobs.active']}, {'@key': ['list.*', 'print']}]
    ivan: []
  sharedsecret:
    frank: ['test.*']
    '*': ['test.version']
  auto:
    dev1: ['.*', '@runner']
token_expire_user_override: {file: [dev1]}
`

// users is the file that ^filename names.
const users = "frank:pass-frank\nops1:pass-ops1\nfr*:pass-star\ndev1:pass-dev1\ngrace:pass-grace\nheidi:pass-heidi\nivan:pass-ivan\nzed:pass-zed\n"

func writeUsers(t testing.TB, dir string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, "users"), []byte(users), 0o600)
	for _, home := range []string{"home", "home1", "home2", "home3", "home4", "home5"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, home), 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
}

const tokenText = `[0-9a-f]{64}`

// by adds the credentials of a user of external_auth.
func (l line) by(eauth, user, password string) line {
	flag := "-a"
	if l.program == "salt-key" {
		flag = "--eauth"
	}
	l.args = append([]string{flag, eauth, "--username", user, "--password", password}, l.args...)
	return l.at("home")
}

// at makes one of the side's folders the caller's home.
func (l line) at(home string) line {
	l.env = append(l.env[:len(l.env):len(l.env)], "HOME=DIR/"+home)
	return l
}

func externalScenes() []scene {
	frank := func(l line) line { return l.by("file", "frank", "pass-frank") }
	dev := func(l line) line { return l.by("file", "dev1", "pass-dev1") }
	grace := func(l line) line { return l.by("file", "grace", "pass-grace") }
	heidi := func(l line) line { return l.by("file", "heidi", "pass-heidi") }
	secret := func(user string, l line) line { return l.by("sharedsecret", user, "open-sesame") }
	const asked = "A refused order ends without a traceback"
	noBatch := func(why string) func(theirs, ours result) error {
		return prints("", "ERROR: publish to web-a: "+why+"\n", 1)
	}
	return []scene{
		{name: "21_external_auth", lines: []line{
			frank(salt("web-a", "test.version")),
			frank(salt("*", "test.version", "--out=txt")).anyOrder(),
			frank(salt("web-a", "test.echo", "x")),
			frank(salt("web-a", "test.arg", "one", "a=1")).unlike("`__pub_tgt` within rights",
				idsAreSent),
			frank(salt("web-b", "test.ping")),
			frank(salt("web-a", "test.version", "--async")),
			dev(salt("web-a", "cmd.run", "echo hi")),
			secret("frank", salt("web-a", "test.ping")),
			secret("zed", salt("web-a", "test.version")),
			salt("web-a", "test.ping").by("auto", "dev1", "anything"),
			salt("web-a", "test.ping").by("file", "ops1",
				"pass-ops1").unlike("Names of users in `external_auth`",
				prints("web-a:\n    True\n", "", 0)),
			salt("web-a", "test.version").by("file", "fr*",
				"pass-star").unlike("Names of users in `external_auth`",
				prints("Authorization error occurred.\n", "", 0)),
			salt("-a", "file", "--username", "frank", "web-a",
				"test.version").in("pass-frank\n").at("home").unlike("Asking for a password",
				prints("web-a:\n    "+reference+"\n", "password:", 0)),
			salt("-a", "file", "web-a",
				"test.version").in("frank\npass-frank\n").at("home").unlike("Asking for a password",
				prints("username: web-a:\n    "+reference+"\n", "password:", 0)),
			salt("-T", "web-a", "test.ping").at("home"),
		}},
		{name: "21_external_auth_batch", lines: []line{
			frank(salt("web-b", "test.ping", "-b", "1")),
			dev(salt("web-a", "test.version", "-b", "1")),
			dev(salt("web-a", "test.ping", "--static", "--out=json")),
			dev(salt("web-*", "test.ping", "--preview-target")),
		}},
		{name: "21_external_auth_refused", lines: []line{
			frank(salt("web-*", "test.echo", "x")),
			frank(salt("web-b", "test.echo", "x")),
			frank(salt("nosuch", "test.echo", "x")),
			frank(salt("web-a", "test.arg", "two", "a=1")),
			frank(salt("web-a", "test.arg", "one")),
			frank(salt("web-a", "test.ping")),
			frank(salt("web-a", "cmd.run", "id", "--out=json")),
			frank(salt("web-a", "test.version", "--static")).unlike(asked,
				noBatch("Authorization error occurred.")),
			frank(salt("web-a", "test.version", "-b", "1")).unlike(asked,
				noBatch("Authorization error occurred.")),
			frank(salt("web-a", "cmd.run", "id", "--async")).unlike(asked,
				prints("Authorization error occurred.\n", "", 1)),
			dev(salt("web-a", "cmd.script", "x")),
			salt("web-a", "test.version").by("file", "frank", "wrong"),
			salt("web-a", "test.version").by("file", "nosuch", "pass-frank"),
			salt("web-a", "test.version").by("file", "zed", "pass-zed"),
			salt("web-a", "test.version").by("file", "ivan", "pass-ivan"),
			salt("web-a", "test.version", "--out=json").by("file", "frank", "wrong"),
			salt("web-a", "test.version", "--static").by("file", "frank", "wrong").unlike(asked,
				noBatch("Authentication error occurred.")),
			salt("web-a", "test.version", "-b", "1").by("file", "frank", "wrong").unlike(asked,
				noBatch("Authentication error occurred.")),
			salt("web-a", "test.version", "--async").by("file", "frank", "wrong").unlike(asked,
				prints("Authentication error occurred.\n", "", 1)),
			salt("web-a", "test.version").by("pam", "frank", "pass-frank"),
			salt("web-a", "test.version").by("django", "frank", "pass-frank"),
			salt("nosuch", "test.version").by("file", "frank", "wrong"),
			secret("frank", salt("web-a", "cmd.run", "id")),
			secret("zed", salt("web-a", "test.ping")),
			salt("web-a", "test.version").by("sharedsecret", "zed", "open-sesam"),
			salt("web-a", "test.ping").by("auto", "dev2", "anything"),
		}},
		{name: "21_external_auth_runners", together: true, lines: []line{
			dev(run("test.arg", "a", "b=1")),
			dev(run("test.arg", "a", "--out=json")),
			dev(run("no.such")),
			dev(run("salt.cmd.x")),
			grace(run("test.arg", "a")),
			grace(run("test.stdout_print")),
			grace(run("jobs.lookup_jid", "20200101000000000000")),
			grace(run("manage.up")),
			heidi(run("test.arg", "a")),
			heidi(run("test.metasyntactic")),
			frank(run("test.arg")),
			run("test.arg", "a").by("file", "dev1", "wrong"),
			run("test.arg", "a", "--out=json").by("file", "dev1", "wrong"),
			run("test.arg", "a").by("django", "dev1", "x"),
			run("test.arg", "a", "--async").by("file", "dev1", "wrong"),
			run("test.arg", "a").by("auto", "dev1", "x"),
		}},
		{name: "21_external_auth_keys", together: true, lines: []line{
			dev(key("-L")),
			dev(key("-l", "acc")),
			dev(key("-L", "--out=json")),
			dev(key("-a", "nosuch", "-y")),
			dev(key("-d", "nosuch", "-y")),
			dev(key("-r", "nosuch", "-y")),
			grace(key("-L")),
			heidi(key("-l", "un")),
			heidi(key("-f", "web-a")),
			frank(key("-L")),
			key("-L").by("file", "dev1", "wrong"),
			key("-L").by("django", "dev1", "wrong"),
		}},
		{name: "22_tokens", lines: []line{
			frank(salt("-T", "web-a", "test.version")).at("home1"),
			frank(salt("-T", "web-a", "test.ping")).at("home2"),
			salt("-T", "web-a", "test.version").by("file", "frank", "wrong").at("home3"),
			dev(run("-T", "test.arg", "a")).at("home4").unlike("Making a token",
				prints("args:\n    - a\nkwargs:\n    ----------\n", "", 0)),
			dev(key("-T", "-l", "acc")).at("home5"),
			run("auth.mk_token", "username=frank", "password=pass-frank",
				"eauth=file").mask(tokenText, "TOKEN").mask(`[0-9]{10}\.[0-9]+`, "TIME"),
			run("auth.mk_token", "username=dev1", "password=pass-dev1", "eauth=file",
				"token_expire=60", "--out=json").mask(tokenText, "TOKEN").mask(`[0-9]{10}\.[0-9]+`,
				"TIME"),
			run("auth.mk_token", "username=frank", "password=wrong", "eauth=file"),
			run("auth.mk_token", "username=frank", "password=pass-frank", "eauth=pam"),
			run("auth.mk_token"),
			run("auth.del_token", "6556760736e4077daa601baec2b67c24"),
		}, do: func(t *testing.T, p *pair) {
			p.both(func(s *side) {
				for home, made := range map[string]bool{"home1": true, "home2": true,
					"home3": false, "home4": true, "home5": true} {
					path := filepath.Join(s.Dir, home, "salt_token")
					b, err := os.ReadFile(path)
					info, statErr := os.Stat(path)
					switch {
					case !made && !errors.Is(err, os.ErrNotExist):
						t.Errorf("%s: %s has a token after a wrong password: %v", s.kind, home, err)
					case made && (errors.Join(err, statErr) != nil ||
						!regexp.MustCompile("^"+tokenText+"$").Match(b) ||
						info.Mode().Perm() != 0o600):
						t.Errorf("%s: %s has %q, %v", s.kind, path, b, errors.Join(err, statErr))
					}
				}
			})
		}},
	}
}
