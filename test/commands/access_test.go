package commands

import (
	"fmt"
	"regexp"
)

// accessOptions are the access control of both masters. The scenes act for carol as sudo does:
// Salt's own keys for other users need these users in the system.
const accessOptions = `publisher_acl:
  carol:
    - test.version
    - web-a:
      - test.echo
      - test.arg:
          args: ['one.*']
          kwargs: {a: null}
    - G@id:web-b:
      - test.ping
  'dev.*': ['.*']
publisher_acl_blacklist:
  users: ['sudo_eve', '^dev9$']
  modules: ['test.exception_with', 'cmd.script*']
sudo_acl: True
`

func (l line) as(sudoer string) line {
	l.env = append(l.env, "SUDO_USER="+sudoer)
	return l
}

func accessScenes() []scene {
	return []scene{
		{name: "20_blacklist", lines: []line{
			salt("web-a", "cmd.script", "x"),
			salt("web-a", "cmd.script_retcode", "x", "--out=json"),
			salt("web-a", "test.ping,cmd.script", ",", "x"),
			salt("nosuch", "cmd.script", "x"),
			salt("web-a", "cmd.script", "x",
				"--static").unlike("A refused order ends without a traceback",
				prints("", "ERROR: publish to web-a: Authorization error occurred.\n", 1)),
			salt("web-a", "cmd.script", "x",
				"--async").unlike("A refused order ends without a traceback",
				prints("Authorization error occurred.\n", "", 1)),
			salt("web-a", "test.ping").as("eve"),
			salt("web-a", "test.ping").as("root").unlike("`sudo` in root's own shell is root",
				prints("web-a:\n    True\n", "", 0)),
		}},
		{name: "24_users", lines: []line{
			salt("web-a", "test.version").as("carol"),
			salt("*", "test.version", "--out=txt").as("carol").anyOrder(),
			salt("web-a", "test.echo", "x").as("carol"),
			salt("web-*", "test.echo", "x").as("carol"),
			salt("web-b", "test.echo", "x").as("carol"),
			salt("nosuch", "test.echo", "x").as("carol"),
			salt("web-a", "test.arg", "one", "a=1").as("carol").unlike("`__pub_tgt` within rights",
				idsAreSent),
			salt("web-a", "test.arg", "two", "a=1").as("carol"),
			salt("web-a", "test.arg", "one").as("carol"),
			salt("web-b", "test.ping").as("carol"),
			salt("web-a", "test.ping").as("carol"),
			salt("-L", "web-a,web-b", "test.ping").as("carol"),
			salt("web-a", "cmd.run", "id").as("carol"),
			salt("web-a", "cmd.run", "id", "--out=json").as("carol"),
			salt("web-a", "test.ping").as("mallory"),
			salt("web-a", "test.ping").as("dev1"),
			salt("web-a", "test.version,test.version", ",").as("carol"),
			salt("web-a", "test.version,cmd.run", ",",
				"id").as("carol").unlike("Of several functions each must be allowed",
				prints("Authorization error occurred.\n", "", 0)),
		}},
	}
}

var sentTarget = regexp.MustCompile(`(__pub_tgt:\n +)web-a\n( +__pub_tgt_type:\n +)glob\n`)

// idsAreSent expects Salt's output, with the list of the checked ids instead of the target.
func idsAreSent(theirs, ours result) error {
	want := sentTarget.ReplaceAllString(theirs.stdout, "${1}- web-a\n${2}list\n")
	if want == theirs.stdout || ours.stdout != want || ours.code != theirs.code {
		return fmt.Errorf("want\n%s", want)
	}
	return nil
}
