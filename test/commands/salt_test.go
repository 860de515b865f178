package commands

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

func saltScenes() []scene {
	return []scene{
		{name: "01_ping", lines: []line{
			salt("*", "test.ping").anyOrder(),
			salt("web-a", "test.ping"),
			salt("-t", "5", "web-a", "test.echo", "hi"),
			salt("web-a", "test.echo", "--timeout=5", "hi"),
		}},
		{name: "03_no_match", lines: []line{
			salt("nosuch", "test.ping"),
			salt("nosuch", "test.ping", "--out=json"),
			salt("nosuch", "test.ping", "--out=yaml"),
			salt("nosuch", "test.ping", "--static"),
			salt("nosuch", "test.ping", "-v", "--summary"),
			salt("nosuch", "test.ping", "--async"),
			salt("nosuch", "-d", "test.ping"),
		}},
		{name: "06_static", lines: []line{
			salt("web-*", "test.ping", "--static", "--out=json").blocks(`^    "web-`).mask(`true,`,
				"true").mask(`(?m)^}$`, ""),
			salt("web-a", "cmd.run", "exit 3", "--static", "--out=json"),
			salt("web-a", "test.ping", "-s"),
			salt("web-a", "test.ping", "-s", "--out=txt"),
			salt("web-a", "cmd.run", "exit 3", "-s", "--out=yaml"),
			salt("web-a", "state.single", "test.nop", "name=x", "-s"),
		}},
		{name: "11_arguments", lines: []line{
			salt("web-a", "test.arg_type", "1", "0x1f", "1e3", "2021-01-01", "'q'", "null", "~",
				"None", "yes", "true", "Off", "", "[1, 2]", "{a: 1}", "foo#bar", "!", "a: b",
				"1_000", "1:30", "017", "a\tb"),
			salt("web-a", "test.arg", "1", "0x1f", "1e3", "2021-01-01", "'q'", "null", "~", "None",
				"yes", "true", "Off", "", "[1, 2]", "{a: 1}", "foo#bar", "!", "a: b", "--out=json"),
			salt("web-a", "test.arg", "a=1", "b=b c", "c=[1, 2]", "d={x: y}", "e=", "f=None",
				"--out=json"),
			salt("web-a", "test.arg", "a==b", "x=", "k=v\nw", "1x=2", "a-b.c=3", "--out=json"),
			salt("web-a", "test.arg", "--no-parse", "a,b", "a=1", "b=[1]", "c=1", "--out=json"),
			salt("--args-stdin", "web-a").in("test.arg\n1\na=b\n--out=json\n-c\nDIR/etc\n"),
			salt("web-a", "test.arg", "20261121093513244628", "--out=json"),
			salt("web-a", "test.arg", "--out=json", "--", "-x", "--static"),
			salt("web-a", "test.arg", "--metadata", "{who: you}", "--out=json"),
		}},
		{name: "13_compound", lines: []line{
			salt("web-a", "test.ping,test.echo", ",", "hi"),
			salt("web-a", "test.echo,test.echo", "a,b", ",", "c"),
			salt("web-a", "test.echo,test.echo", "--args-separator", "::", "a,b", "::", "c",
				"--out=json"),
			salt("web-a", "test.ping,test.echo"),
			salt("web-a", "test.ping,test.echo", "1,2,3"),
			salt("web-a", "test.ping,cmd.run", ",", "exit 4"),
			salt("web-a", "test.ping,test.exception", ",", "x").mask(`File ".*?", line [0-9]+`,
				"FILE"),
		}},
		{name: "16_async", lines: []line{
			salt("web-a", "test.ping", "--async"),
			salt("web-a", "test.ping", "--async", "--show-jid"),
			salt("web-a", "test.ping", "--async", "-v"),
			salt("web-a", "test.ping", "--async", "-b", "1").unlike("Batches in the background",
				prints("",
					"ERROR: --batch with --async needs a batch manager, which this master does "+
						"not have; leave one of them out\n", 2)),
		}},
		{name: "17_verbose_and_summary", lines: []line{
			salt("web-a", "test.ping", "-v"),
			salt("web-a", "test.ping", "--show-jid"),
			salt("web-a", "test.ping", "--summary"),
			salt("web-*", "test.ping", "--summary", "-v").anyOrder(),
			salt("web-a", "cmd.run", "exit 3", "--summary", "-v"),
			salt("web-a", "test.ping", "--summary", "--out=json"),
			salt("web-a", "test.ping", "-v", "--out=json"),
			salt("web-a", "test.ping", "--hide-timeout"),
			salt("web-a", "test.ping", "--show-timeout"),
			salt("web-a", "test.ping", "--progress").unlike("The progress bar",
				prints("web-a:\n    True\n", "", 0)),
		}},
		{name: "18_subset_and_preview", lines: []line{
			salt("web-a", "test.ping", "--subset", "1"),
			salt("web-a", "no.such", "--subset", "1"),
			salt("web-*", "--preview-target"),
			salt("web-a", "test.ping", "--preview-target", "--out=json"),
			salt("nosuch", "--preview-target"),
		}, do: func(t *testing.T, p *pair) {
			p.both(func(s *side) {
				r := s.call(t, "salt", call{args: []string{"web-*", "test.ping", "--subset", "1"}})
				if r.stdout != "web-a:\n    True\n" && r.stdout != "web-b:\n    True\n" ||
					r.code != 0 {
					t.Errorf("%s: --subset 1 of two: %v", s.kind, r)
				}
			})
		}},
		{name: "19_long_job", lines: []line{salt("web-a", "test.sleep", "7", "-t", "1")}},
		{name: "24_failures", lines: []line{
			salt("web-a", "test.ping", "1"),
			salt("web-a", "no.such"),
			salt("web-a", "test.exception", "no").mask(`File ".*?", line [0-9]+`, "FILE"),
			salt("web-a", "cmd.run", "exit 3"),
			salt("web-a", "test.false"),
			salt("web-a", "test.retcode", "7"),
		}},
		{name: "26_master_down", masterless: true, lines: []line{
			salt("-c", "DIR/down", "*", "test.ping"),
			salt("-c", "DIR/down", "*", "test.ping", "--out=json"),
		}},
		{name: "usage", masterless: true, lines: []line{
			salt("web-a", "test.ping", "--foo"),
			salt("-t", "abc", "web-a", "test.ping"),
			salt("--subset", "x", "web-a", "test.ping"),
			salt("--batch-wait", "x", "web-a", "test.ping"),
			salt("-l", "loud", "web-a", "test.ping"),
			salt("--timeout"),
			salt("--gather-job-timeout", "3", "web-a", "test.ping"),
			salt("-u", "root", "web-a", "test.ping"),
			salt("-E", "-G", "web-a", "test.ping"),
			salt("-d", "web-a", "test.ping", "test.echo", "test.arg"),
			salt("--out-indent", "x", "web-a", "test.ping"),
			salt("--saltfile", "DIR/nosuch", "web-a", "test.ping"),
			salt().unlike("Help",
				incomplete("\nCannot execute command without defining a target.\n\n")),
			salt("web-a").unlike("Help", incomplete("\nIncomplete options passed.\n\n")),
			salt("--version").unlike("Versions", func(_, ours result) error {
				if ours.code != 0 || !strings.HasPrefix(ours.stdout,
					"salt "+reference+" (clustermaster ") {
					return errors.New("no version")
				}
				return nil
			}),
			salt("-h").unlike("Help",
				begins("Usage: salt [options] '<target>' <function> [arguments]\n", "", 0)),
		}},
		{name: "documentation", lines: []line{
			salt("web-a", "-d", "test.ping"),
			salt("web-a", "-d", "test.arg"),
			salt("web-a", "sys.doc", "test.ping"),
			salt("-d", "test.ping").anyOrder(),
			salt("web-a", "-d", "test.ping", "--out=json"),
			salt("web-a", "-d", "no.such"),
		}},
	}
}

// incomplete checks a call without target or function: the whole help, then Salt's line and code.
func incomplete(stderr string) func(theirs, ours result) error {
	return func(theirs, ours result) error {
		if ours.code != theirs.code || ours.stderr != theirs.stderr || ours.stderr != stderr {
			return errors.New("exit code and standard error are to be Salt's")
		}
		if !strings.HasPrefix(ours.stdout,
			"Usage: salt [options] '<target>' <function> [arguments]\n") {
			return errors.New("no help")
		}
		return nil
	}
}

// targetScenes compare the matches of each kind of target.
func targetScenes() []scene {
	preview := func(args ...string) line {
		return salt(append(args,
			"--preview-target")...).blocks(`^- `)
	}
	// Salt's own command resolves the target and reports the word it failed on; ours leaves that to
	// the master.
	broken := func(args ...string) line {
		return preview(args...).unlike("Errors of targets in previews",
			prints("", "ERROR: No return received\n", 2))
	}
	return []scene{
		{name: "04_list", lines: []line{
			salt("-L", "web-a,web-b", "test.ping").anyOrder(),
			salt("-L", "web-a web-b", "test.ping").anyOrder(),
			salt("-L", "web-a, web-b", "test.ping").anyOrder(),
			salt("-L", " web-a , ", "test.ping").unlike("Lists with empty names",
				prints("web-a:\n    True\n", "", 0)),
			salt("-L", "nosuch", "test.ping"),
			salt("-L", "web-a,nosuch", "test.ping", "-t", "1"),
		}},
		{name: "05_nodegroup", lines: []line{
			salt("-N", "nosuch", "test.ping"),
			salt("-N", "one", "test.ping"),
			salt("-N", "both", "test.ping").anyOrder(),
			preview("-N", "both"),
			preview("-C", "N@one or web-b"),
		}},
		groupScene(),
		{name: "targets", lines: []line{
			preview("web-[ab]"), preview("web-?"), preview("[!w]*"), preview("*"),
			preview("-E", "web-(a|b)"), preview("-E", "eb-a"), preview("-E", "web"),
			broken("-E", "("),
			preview("-L", "web-a,nosuch"),
			preview("-G", "e2e:3008*"), preview("-G", "e2e:2*"), preview("-G", "os:*"),
			preview("-G", "nosuch:*"), preview("-G", "e2e"),
			preview("-P", `e2e:3\d+`), preview("-P", "e2e:8"),
			preview("-I", "role:web"), preview("-J", "role:w.*"),
			preview("-S", "127.0.0.1"), preview("-S", "127.0.0.0/8"), preview("-S", "198.51.100.0/24"),
			broken("-S", "nosuch"),
			preview("-C", "web-a or web-b"), preview("-C", "web-* and not web-a"),
			preview("-C", "G@e2e:3008* and E@web-a"),
			preview("-C", "( web-a or web-b ) and L@web-b,x"), preview("-C", "(("),
			broken("-C", "not"), preview("-C", "S@127.0.0.1 and web-a"),
			preview("-C", "nosuch"), broken("-C", ""),
		}},
		{name: "target_options", lines: []line{
			salt("-G", "e2e:3008*", "test.ping").anyOrder(),
			salt("-G", "systemd|version:*", "--delimiter=|", "test.ping").anyOrder(),
			salt("-C", "web-* and not web-a", "test.ping"),
			salt("-E", "web-a", "test.ping"),
			salt("-S", "127.0.0.0/8", "test.ping").anyOrder(),
			salt("-P", `e2e:^3\d+`, "test.ping").anyOrder(),
			salt("-I", "nosuch:x", "test.ping"),
			salt("-C", "((", "test.ping"),
			salt("-R", "%x", "test.ping"),
			salt("-G", "e2e|3008*", "--delimiter=|",
				"--preview-target").blocks(`^- `).unlike("Delimiters in previews",
				prints("- web-a\n- web-b\n", "", 0)),
		}},
	}
}

// groupScene compares commands whose own file has other nodegroups than the running master.
func groupScene() scene {
	of := func(l line) line {
		l.args = append([]string{"-c", "DIR/groups"}, l.args...)
		return l
	}
	// Salt's command logs what it can't write out.
	logged := func(l line) line {
		return of(l).unlike("Log lines of the commands", func(theirs, ours result) error {
			theirs.stderr = regexp.MustCompile(`(?m)^\[ERROR   \] .*\n`).ReplaceAllString(
				theirs.stderr, "")
			if !ours.equal(theirs) {
				return errors.New("all but the log lines are to be Salt's")
			}
			return nil
		})
	}
	// Salt's traceback ends with the text.
	refused := func(l line) line {
		return of(l).unlike("Python's tracebacks", func(theirs, ours result) error {
			const text = "Node group nosuch unavailable in DIR/groups/master\n"
			if ours.code != theirs.code || ours.code != 1 || !strings.HasSuffix(theirs.stderr, text) ||
				!strings.HasSuffix(ours.stdout+ours.stderr, text) {
				return errors.New("exit code and text are to be Salt's, without the traceback")
			}
			return nil
		})
	}
	// Runner functions take the nodegroups of the running master.
	raised := func(args ...string) line {
		return run(args...).unlike("Python's tracebacks", func(theirs, ours result) error {
			head := "Exception occurred in runner " + args[0] + ": "
			const text = "Node group nosuch unavailable in DIR/etc/master\n"
			if ours.code != theirs.code || !strings.HasPrefix(theirs.stdout, head) ||
				!strings.HasSuffix(strings.TrimRight(theirs.stdout, "\n")+"\n", text) ||
				ours.stdout != head+text || ours.stderr != theirs.stderr {
				return errors.New("exit code and text are to be Salt's, without the traceback")
			}
			return nil
		})
	}
	return scene{
		name: "05_nodegroups_of_the_file",
		before: func(t *testing.T, p *pair) {
			for _, s := range p.sides() {
				own, _, _ := strings.Cut(options, "nodegroups:")
				s.write(t, "groups/master", strings.Replace(s.Config(t), options, own, 1))
				s.write(t, "groups/master.d/groups.conf", fileGroups)
				s.write(t, "groups/text", "text\n")
			}
		},
		more: func() string { return fileGroups },
		lines: []line{
			of(salt("-N", "one", "test.ping")),
			of(salt("-N", "new", "test.ping")).anyOrder(),
			of(salt("-N", "nested", "test.ping")),
			logged(salt("-N", "inner", "test.ping")),
			of(salt("-N", "empty", "test.ping")),
			logged(salt("-N", "loop", "test.ping")),
			of(salt("-N", "both", "test.ping")),
			of(salt("-C", "N@new and not web-a", "test.ping")),
			of(salt("-C", "web-a or N@one", "test.ping")).anyOrder(),
			of(salt("-N", "one", "-b", "1", "test.ping")),
			of(salt("-N", "one", "-s", "test.ping")),
			of(salt("-N", "one", "--subset", "1", "test.ping")),
			of(salt("-N", "one", "-d", "test.ping")),
			of(salt("-N", "one", "--preview-target")),
			of(salt("-C", "N@one", "--preview-target")),
			of(salt("-N", "new", "--batch-safe-limit=2", "test.ping")).whichever(),
			of(salt("-N", "one", "test.ping", "-v")).saves("SINGLE"),
			run("jobs.list_job", "$SINGLE"),
			of(salt("-N", "new", "test.ping", "-v")).anyOrder().saves("SEVERAL"),
			run("jobs.list_job", "$SEVERAL").blocks("^    - web-"),
			of(cp("-N", "one", "DIR/groups/text", "DIR/groups/copy")).writes("DIR/groups/copy"),
			of(cp("-C", "-N", "one", "DIR/groups/text", "DIR/groups/big")).writes("DIR/groups/big"),

			of(salt("-N", "nosuch", "test.ping")),
			of(salt("-C", "N@nosuch", "test.ping")),
			of(salt("-C", "web-a or N@nosuch", "test.ping", "--out=json")),
			of(salt("-N", "nosuch", "--subset", "1", "test.ping")),
			of(salt("-N", "nosuch", "-d", "test.ping")),
			logged(salt("-N", "nosuch", "--preview-target")),
			logged(salt("-C", "web-a or N@nosuch", "--preview-target")),
			logged(salt("-N", "nosuch", "--batch-safe-limit=2", "test.ping")),
			refused(salt("-N", "nosuch", "-b", "1", "test.ping")),
			refused(salt("-C", "N@nosuch", "-b", "1", "test.ping")),
			refused(salt("-N", "nosuch", "-s", "test.ping")),
			refused(salt("-N", "nosuch", "--async", "test.ping")),
			refused(salt("-C", "N@nosuch", "--async", "test.ping")),
			refused(salt("-N", "nosuch", "-b", "1", "--async", "test.ping")),
			refused(cp("-N", "nosuch", "DIR/groups/text", "DIR/groups/copy")),
			refused(cp("-C", "-N", "nosuch", "DIR/groups/text", "DIR/groups/copy")),

			raised("manage.status", "tgt=nosuch", "tgt_type=nodegroup"),
			raised("manage.up", "tgt=web-a or N@nosuch", "tgt_type=compound"),
			raised("manage.down", "tgt=nosuch", "tgt_type=nodegroup"),
			run("salt.execute", "nosuch", "test.ping", "tgt_type=nodegroup"),
			run("mine.update", "nosuch", "tgt_type=nodegroup"),
			run("salt.execute", "one", "test.ping", "tgt_type=nodegroup"),
		},
	}
}

// fileGroups are the nodegroups of groupScene's file. The running master has another group one, and
// both.
const fileGroups = `nodegroups:
  one: web-b
  new: [web-a, web-b]
  nested: N@new and not web-a
  inner: web-a or N@nosuch
  loop: N@loop
  empty: ''
`
