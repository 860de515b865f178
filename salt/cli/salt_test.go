package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/config"
	"clustermaster/serve/operator"
	"clustermaster/value"
)

// three minions that return in the order c, a, b.
func three() *fakeDaemon {
	return &fakeDaemon{minions: map[string]minion{
		"web-a": {answer: true, after: 2 * time.Millisecond},
		"web-b": {answer: true, after: 3 * time.Millisecond},
		"web-c": {answer: true, after: time.Millisecond},
	}}
}

const failedLine = "ERROR: Minions returned with non-zero exit code\n"

func TestSaltPrintsReturnsAsTheyArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run(t, Salt, three(), "", "*", "test.ping").check(t, 0,
			"web-c:\n    True\nweb-a:\n    True\nweb-b:\n    True\n", "")
		run(t, Salt, three(), "", "*", "test.ping", "--out=json", "--out-indent=-1").check(t, 0,
			"{\"web-c\": true}\n{\"web-a\": true}\n{\"web-b\": true}\n", "")
		run(t, Salt, three(), "", "*", "test.ping", "--out=txt").check(t, 0,
			"web-c: True\nweb-a: True\nweb-b: True\n", "")
		run(t, Salt, three(), "", "*", "test.ping", "--out=quiet").check(t, 0, "", "")
		run(t, Salt, three(), "", "-L", "web-a, web-b", "test.ping", "--out=yaml").check(t, 0,
			"web-a: true\nweb-b: true\n", "")
		run(t, Salt, three(), "", "web-a", "test.ping", "--out=nosuch").check(t, 0,
			"web-a:\n    True\n",
			"[ERROR   ] Invalid outputter nosuch specified, fall back to nested\n")
		run(t, Salt, three(), "", "web-a", "test.ping", "--force-color").check(t, 0,
			"\x1b[0;36mweb-a\x1b[0;0m:\n    \x1b[0;1;33mTrue\x1b[0;0m\n", "")
	})
}

func TestSaltStatic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := three()
		d.minions["web-b"] = minion{answer: "broken", retcode: int64(3),
			after: 3 * time.Millisecond}
		// one document, and no error although a minion failed
		run(t, Salt, d, "", "*", "test.version", "--static", "--out=json").check(t, 0,
			"{\n    \"web-c\": true,\n    \"web-a\": true,\n    \"web-b\": \"broken\"\n}\n", "")
		run(t, Salt, three(), "", "nosuch", "test.ping", "--static", "--out=json").check(t, 2,
			noMatch+"\n{}\n", "ERROR: No return received\n")
	})
}

func TestSaltFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{minions: map[string]minion{"web-a": {answer: "no", retcode: int64(3)}}}
		run(t, Salt, d, "", "*", "x.y").check(t, 1, "web-a:\n    no\n", failedLine)
		d = &fakeDaemon{minions: map[string]minion{"web-a": {answer: false}}}
		// False is a normal value
		run(t, Salt, d, "", "*", "x.y").check(t, 0, "web-a:\n    False\n", "")
		d = &fakeDaemon{minions: map[string]minion{"web-a": {answer: value.Map{{Key: "a.b",
			Value: int64(1)}}, retcode: value.Map{{Key: "a.b", Value: int64(0)},
			{Key: "c.d", Value: int64(2)}}}}}
		if r := run(t, Salt, d, "", "*", "a.b,c.d", ","); r.code != 1 {
			t.Errorf("exit %d of a compound job, want 1", r.code)
		}
		run(t, Salt, three(), "", "nosuch", "test.ping").check(t, 2, noMatch+"\n",
			"ERROR: No return received\n")
		run(t, Salt, three(), "", "nosuch", "test.ping", "--out=json").check(t, 2, noMatch+"\n{}\n",
			"ERROR: No return received\n")
		run(t, Salt, nil, "", "*", "test.ping").check(t, 0, masterDown+"\n",
			"[ERROR   ] Unable to connect to the salt master publisher at /run/m\n")
		run(t, Salt, &fakeDaemon{refuse: "Authorization error occurred."}, "", "*",
			"test.ping").check(t, 0, "Authorization error occurred.\n", "")
	})
}

func TestSaltSilentMinion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{minions: map[string]minion{"ghost": {silent: true},
			"web-a": {answer: true}}}
		began := time.Now()
		r := run(t, Salt, d, "", "*", "test.ping", "--hide-timeout")
		if took := time.Since(began); took < 15*time.Second || took > 17*time.Second {
			t.Errorf("took %s, want timeout and gather_job_timeout (15 s)", took)
		}
		want := "web-a:\n    True\nghost:\n    Minion did not return. [No response]\n" +
			"    The minions may not have all finished running and any remaining minions will return upon completion. To look up the return data for this job later, run the following command:\n" +
			"    \n    salt-run jobs.lookup_jid " + d.published[0].JID + "\n"
		r.check(t, 1, want, failedLine)
	})
}

func TestSaltUnknownIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := three()
		r := run(t, Salt, d, "", "-L", "web-a,ghost", "test.ping")
		want := "web-a:\n    True\nghost:\n    Minion did not return. [No response]\n"
		if r.code != 1 || !strings.HasPrefix(r.stdout, want) || r.stderr != failedLine {
			t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		run(t, Salt, three(), "", "-L", "ghost", "test.ping").check(t, 2, noMatch+"\n",
			"ERROR: No return received\n")
	})
}

// TestSaltNodegroups: the command writes out the nodegroups of its own file before it sends.
func TestSaltNodegroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			cmd   command
			words []string
			want  string
		}{
			{Salt, []string{"-N", "blue", "test.ping"}, "web*"},
			{Salt, []string{"-N", "blue", "test.ping", "-b", "1"}, "web*"},
			{Salt, []string{"-N", "blue", "test.ping", "-s"}, "web*"},
			{Salt, []string{"-N", "blue", "test.ping", "--async"}, "web*"},
			{Salt, []string{"-C", "N@blue  or db", "test.ping", "--subset", "1"}, "web* or db"},
			{SaltCP, []string{"-N", "blue", "salt_test.go", "/tmp/x"}, "web*"},
			{SaltCP, []string{"-C", "-N", "blue", "salt_test.go", "/tmp/x"}, "web*"},
		} {
			d := three()
			run(t, tt.cmd, d, "", tt.words...)
			if p := d.published[0]; p.TgtType != "compound" || p.Tgt != tt.want {
				t.Errorf("%q sends %s %v, want compound %q", tt.words, p.TgtType, p.Tgt, tt.want)
			}
		}
		const text = "Node group red unavailable in /etc/salt/master\n"
		for _, tt := range []struct {
			cmd            command
			words          []string
			code           int
			stdout, stderr string
		}{
			{Salt, []string{"-N", "red", "test.ping"}, 0, text, ""},
			{Salt, []string{"-C", "web-a or N@red", "test.ping"}, 0, text, ""},
			{Salt, []string{"-N", "red", "test.ping", "--subset", "1"}, 0, text, ""},
			{Salt, []string{"-N", "red", "test.ping", "--async"}, 1, text, ""},
			{Salt, []string{"-N", "red", "test.ping", "-s"}, 1, "", "ERROR: publish to red: " + text},
			{Salt, []string{"-N", "red", "test.ping", "-b", "1"}, 1, "",
				"ERROR: publish to red: " + text},
			{Salt, []string{"-N", "red", "-d", "test.ping"}, 2, "", text},
			{Salt, []string{"-N", "red", "--preview-target"}, 2, "", "ERROR: No return received\n"},
			{SaltCP, []string{"-N", "red", "salt_test.go", "/tmp/x"}, 1, "",
				"ERROR: publish to red: " + text},
		} {
			d := three()
			run(t, tt.cmd, d, "", tt.words...).check(t, tt.code, tt.stdout, tt.stderr)
			if len(d.published) > 0 {
				t.Errorf("%q sends %v", tt.words, d.published)
			}
		}
	})
}

func TestSaltWaitsForALongJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{minions: map[string]minion{"slow": {answer: "done",
			after: 40 * time.Second}}}
		run(t, Salt, d, "", "*", "cmd.run", "x", "-t", "2").check(t, 0, "slow:\n    done\n", "")
	})
}

func TestSaltVerboseAndSummary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{minions: map[string]minion{"ghost": {silent: true},
			"web-a": {answer: "x", retcode: int64(1)}}}
		r := run(t, Salt, d, "", "*", "x.y", "-v", "--summary")
		jid := d.published[0].JID
		head := "Executing job with jid " + jid + "\n" + strings.Repeat("-", 23+len(jid)) +
			"\n\nweb-a:\n    x\nghost:\n"
		if !strings.HasPrefix(r.stdout, head) {
			t.Errorf("stdout begins\n%s\nwant\n%s", r.stdout, head)
		}
		rule := "-------------------------------------------\n"
		tail := "\n\n" + rule + "Summary\n" + rule +
			"# of minions targeted: 2\n# of minions returned: 1\n# of minions that did not return: 1\n" +
			"# of minions with errors: 1\nMinions not responding: ghost\nMinions with failures: web-a\n" + rule
		if !strings.HasSuffix(r.stdout, tail) {
			t.Errorf("stdout ends\n%s\nwant\n%s", r.stdout, tail)
		}
		d = three()
		r = run(t, Salt, d, "", "web-a", "test.ping", "--show-jid")
		r.check(t, 0, "jid: "+d.published[0].JID+"\nweb-a:\n    True\n", "")
	})
}

func TestSaltAsyncPreviewSubset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		run(t, Salt, three(), "", "*", "test.ping", "--async").check(t, 0,
			"Executed command with job ID: 20261121093513000001\n", "")
		run(t, Salt, three(), "", "no", "test.ping", "--async").check(t, 0,
			noMatch+"\nExecuted command with job ID: 0\n", "")
		d := three()
		run(t, Salt, d, "", "*a", "--preview-target").check(t, 0, "- web-a\n", "")
		if len(d.published) != 0 {
			t.Error("a preview sent something")
		}
		run(t, Salt, d, "", "*", "service.restart", "nginx", "--preview-target",
			"--batch-safe-limit", "2").check(t, 0, "- web-a\n- web-b\n- web-c\n", "")
		if len(d.published) != 0 {
			t.Error("a preview above batch_safe_limit sent something")
		}
		r := run(t, Salt, d, "", "*", "x.y", "--async", "--batch-safe-limit", "2")
		if r.code != 2 || len(d.published) != 0 ||
			!strings.Contains(r.stderr, "add --batch-safe-limit=0\n") {
			t.Errorf("--async above batch_safe_limit: exit %d, %d jobs\n%s", r.code,
				len(d.published), r.stderr)
		}
		if r = run(t, Salt, d, "", "*", "x.y", "--async", "--batch-safe-limit=0"); r.code != 0 {
			t.Errorf("--async without a limit: exit %d\n%s", r.code, r.stderr)
		}
		run(t, Salt, three(), "", "no", "--preview-target").check(t, 2, "",
			"ERROR: No return received\n")
		d = three()
		d.minions["web-b"] = minion{answer: "b"}
		run(t, Salt, d, "", "*", "x.web-b", "--subset", "1").check(t, 0, "web-b:\n    b\n", "")
	})
}

func TestSaltUsage(t *testing.T) {
	t.Parallel()
	r := run(t, Salt, three(), "")
	if r.code != 42 || r.stderr != "\nCannot execute command without defining a target.\n\n" ||
		!strings.Contains(r.stdout, "Usage: salt ") {
		t.Errorf("exit %d, stderr %q", r.code, r.stderr)
	}
	r = run(t, Salt, three(), "", "*")
	if r.code != 42 || r.stderr != "\nIncomplete options passed.\n\n" {
		t.Errorf("exit %d, stderr %q", r.code, r.stderr)
	}
	usage := "Usage: salt [options] '<target>' <function> [arguments]\n\nsalt: error: "
	run(t, Salt, three(), "", "-G", "-E", "a", "b").check(t, 64, "",
		usage+"The options --pcre/--grain are mutually exclusive. Please only choose one of them\n")
	run(t, Salt, three(), "", "-d", "a", "b", "c", "d").check(t, 64, "",
		usage+"You can only get documentation for one method at one time.\n")
	run(t, Salt, three(), "", "a", "x.y,z.q", "1,2,3").check(t, 42, "",
		"Cannot execute compound command with more arguments than commands.\n")
	run(t, Salt, three(), "", "--version").check(t, 0, "salt 3008.3 (clustermaster)\n", "")
	if r := run(t, Salt, three(), "", "--help"); r.code != 0 ||
		!strings.Contains(r.stdout, "Examples:\n  salt '*' test.ping\n") {
		t.Errorf("help: exit %d\n%s", r.code, r.stdout)
	}
}

func TestSaltPublishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tests := []struct {
			words []string
			want  string
		}{
			{[]string{"*", "a.b", "1", "x=yes", "20261121093513244628"},
				"* glob a.b [1 20261121093513244628 [{__kwarg__ true} {x true}]]"},
			{[]string{"-E", "web-[ab]", "a.b", "--no-parse", "x", "x=1"},
				"web-[ab] pcre a.b [[{__kwarg__ true} {x 1}]]"},
			{[]string{"-L", "web-a web-b", "a.b", "c,d"}, "[web-a web-b] list a.b [c,d]"},
			{[]string{"*", "a.b,c.d", "1", ",", "k=v"},
				"* glob [a.b c.d] [[1] [[{__kwarg__ true} {k v}]]]"},
			{[]string{"-C", "web*", "a.b"}, "web* compound a.b []"},
			{[]string{"-I", "web*", "a.b"}, "web* pillar a.b []"},
			{[]string{"-P", "web*", "a.b"}, "web* grain_pcre a.b []"},
			{[]string{"-S", "web*", "a.b"}, "web* ipcidr a.b []"},
		}
		for _, tt := range tests {
			d := three()
			run(t, Salt, d, "", append(tt.words, "--async")...)
			p := d.published[0]
			if got := fmt.Sprintf("%v %s %v %v", p.Tgt, p.TgtType, p.Fun, p.Arg); got != tt.want {
				t.Errorf("salt %q sent %s, want %s", tt.words, got, tt.want)
			}
		}
		d := three()
		run(t, Salt, d, "web-a\ntest.ping\n--async\n", "--args-stdin", "--metadata", "{a: 1}",
			"--return", "redis")
		p := d.published[0]
		if meta, _ := p.Kwargs.Get("metadata"); p.Tgt != "web-a" || p.Ret != "redis" ||
			fmt.Sprint(meta) != "[{a 1}]" {
			t.Errorf("sent %+v", p)
		}
	})
}

func TestSaltBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &fakeDaemon{minions: map[string]minion{"a": {answer: "x", after: time.Second},
			"b": {answer: "y", after: time.Second, retcode: int64(3)}, "c": {silent: true}}}
		r := run(t, Salt, d, "", "*", "x.y", "-b", "1")
		jid := d.published[len(d.published)-1].JID
		// the window first moves on
		want := "Minion c did not respond. No job will be sent.\n\nExecuting run on ['a']\n\n\nExecuting run on ['b']\n\n" +
			"a:\n    x\njid:\n    " + jid + "\nretcode:\n    0\nb:\n    y\njid:\n    " + jid +
			"\nretcode:\n    3\n"
		r.check(t, 3, want, "")
		told := "salt/batch/" + jid + "/"
		if events := []string{told + "new", told + "progress", told + "progress",
			told + "progress", told + "complete"}; !slices.Equal(d.fired, events) {
			t.Errorf("fired %q", d.fired)
		}

		d.noEvents, d.fired = true, nil // of a user who may not fire events
		r = run(t, Salt, d, "", "*", "x.y", "-b", "1")
		r.check(t, 3, strings.ReplaceAll(want, jid, d.published[len(d.published)-1].JID), "")
		if len(d.fired) != 1 {
			t.Errorf("fired %q, though the master refused the first", d.fired)
		}

		d.minions["a"] = minion{answer: "x", retcode: int64(4)}
		r = run(t, Salt, d, "", "*", "x.y", "-b", "1", "--failhard")
		if r.code != 4 || strings.Contains(r.stdout, "['b']") ||
			r.stderr != "[ERROR   ] Batch run stopped due to failhard\n" {
			t.Errorf("failhard: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
		run(t, Salt, three(), "", "no", "x.y", "-b", "1").check(t, 2,
			noMatch+"\nNo minions matched the target.\n", "ERROR: No return received\n")
		r = run(t, Salt, three(), "", "*", "x.y", "-b", "foo")
		r.check(t, 1, "",
			"ERROR: Invalid batch specification 'foo': must be an integer or percentage string like '10' or '25%'.\n")
		if r = run(t, Salt, three(), "", "*", "x.y", "--batch-safe-limit",
			"2"); !strings.HasPrefix(r.stdout,
			"\nNOTICE: Too many minions targeted, switching to batch execution.\n\nExecuting run on ['web-a', 'web-b', 'web-c']\n\n") {
			t.Errorf("safe limit:\n%s", r.stdout)
		}
		began := time.Now()
		run(t, Salt, three(), "", "*", "x.y", "-b", "1", "--batch-wait", "2")
		if took := time.Since(began); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("three minions with two waits of 2 s took %s", took)
		}
	})
}

func TestSaltDocs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := value.Map{{Key: "test.ping", Value: "Ping."}, {Key: "a.b", Value: "Other."},
			{Key: "none", Value: nil}}
		d := &fakeDaemon{minions: map[string]minion{"web-a": {answer: docs},
			"web-b": {answer: docs}}}
		run(t, Salt, d, "", "-d", "*", "test").check(t, 0,
			"a.b:\nOther.\n\ntest.ping:\nPing.\n\n", "")
		if got := fmt.Sprint(d.published[0].Fun, d.published[0].Arg); got != "sys.doc[test]" &&
			got != "sys.doc [test]" {
			t.Errorf("sent %s", got)
		}
		run(t, Salt, d, "", "-d", "no").check(t, 2, noMatch+"\n",
			"No minions found to gather docs from\n")
	})
}

func TestOutputFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		run(t, Salt, three(), "", "web-a", "test.ping", "--out-file", path).check(t, 0, "", "")
		run(t, Salt, three(), "", "web-b", "test.ping", "--out-file", path,
			"--out-file-append").check(t, 0, "", "")
	})
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "web-a:\n    True\nweb-b:\n    True\n" {
		t.Errorf("file holds %q, %v", got, err)
	}
}

// TestSaltSaysWhatATargetDoesNotCover: a warning appears if minions may have been left out, because
// silence would look like success.
func TestSaltSaysWhatATargetDoesNotCover(t *testing.T) {
	t.Parallel()
	const said = "[WARNING ] incomplete: 3 of 256 partitions; minions whose grains or pillar are kept by masters that can't be reached are not targeted\n"
	synctest.Test(t, func(t *testing.T) {
		for _, words := range [][]string{{"web-a", "test.ping"}, {"web-a", "test.ping", "--static"},
			{"web-a", "test.ping", "--async"}, {"web-a", "--preview-target"},
			{"web-a", "test.ping", "-b", "1"}, {"web-a", "x.web-a", "--subset", "1"}} {
			d := three()
			d.incomplete = "incomplete: 3 of 256 partitions"
			if r := run(t, Salt, d, "", words...); !strings.Contains(r.stderr, said) {
				t.Errorf("salt %q: exit %d, stderr %q", words, r.code, r.stderr)
			}
		}
	})
}

// TestSaltWaitsForTheNextMaster: while clustermaster migrate replaces the master, salt waits for
// the next one. If that is Salt's, the newly installed command runs.
func TestSaltWaitsForTheNextMaster(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		d      *fakeDaemon
		again  int
		stdout string
	}{
		"ours":   {d: three(), stdout: "web-a: True\n"},
		"Salt's": {again: 1, stdout: masterDown + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				if err := operator.StartMoving(dir); err != nil {
					t.Fatal(err)
				}
				const takes = 20 * time.Second
				time.AfterFunc(takes, func() { operator.StopMoving(dir) })
				env, out, _ := newEnv(tt.d, "")
				load := env.Load
				env.Load = func(d string, getenv func(string) string) (*config.Options, []config.Warning, error) {
					o, w, err := load(d, getenv)
					o.SockDir = dir
					return o, w, err
				}
				again := 0
				env.Again = func() { again++ }
				began := time.Now()
				code := Salt(t.Context(), []string{"web-a", "test.ping", "--out=txt"}, env)
				if took := time.Since(began); code != 0 || out.String() != tt.stdout ||
					took < takes || took > takes+time.Second || again != tt.again {
					t.Errorf("exit %d after %v, %d times again: %s", code, took, again, out)
				}
				if tt.d != nil {
					tt.d.work.Wait()
				}
			})
		})
	}
}

// TestMissingConfigDir: the warning of a missing folder leaves standard output to the results, and
// a folder below ~ is found.
func TestMissingConfigDir(t *testing.T) {
	t.Parallel()
	d := three()
	d.home = t.TempDir()
	if err := os.Mkdir(filepath.Join(d.home, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	warning := "WARNING: CONFIG '" + d.home + "/no' directory does not exist.\n"
	for dir, stderr := range map[string]string{"~/etc": "", "~/no": warning,
		d.home + "/no": warning, "/": ""} {
		run(t, Salt, d, "", "-c", dir, "web-a", "test.ping", "--out=txt").check(t, 0,
			"web-a: True\n", stderr)
	}
	env, _, errs := newEnv(d, "")
	env.Getenv = func(name string) string {
		return map[string]string{"HOME": d.home, "SALT_CONFIG_DIR": "~/no"}[name]
	}
	if Salt(t.Context(), []string{"web-a", "test.ping"}, env); errs.String() != warning {
		t.Errorf("without -c: %q", errs)
	}
	d.work.Wait()
}

// TestSyndics: with order_masters, salt and salt-cp wait for syndics, syndic_wait long, and tell
// them how long they wait for returns.
func TestSyndics(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "motd")
	if err := os.WriteFile(file, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			cmd   command
			words []string
		}{{Salt, []string{"web-a", "test.ping"}}, {SaltCP, []string{"web-a", file, "/to"}}} {
			d := three()
			env, out, _ := newEnv(d, "")
			load := env.Load
			env.Load = func(dir string, getenv func(string) string) (*config.Options, []config.Warning, error) {
				o, w, err := load(dir, getenv)
				o.OrderMasters, o.SyndicWait, o.Syndics = true, 7*time.Second, []string{"syn*"}
				return o, w, err
			}
			began := time.Now()
			code := c.cmd(t.Context(), append(c.words, "-t", "3"), env)
			if took := time.Since(began); code != 0 || took != 7*time.Second ||
				d.published[0].Timeout != 3*time.Second {
				t.Errorf("%q: exit %d after %v, published %+v: %s", c.words, code, took, d.published[0], out)
			}
			d.work.Wait()
			d.minions = map[string]minion{"syn-1": {silent: true}}
			if code := Salt(t.Context(), []string{"-t", "1", "*", "test.ping"}, env); code != 0 ||
				strings.Contains(out.String(), "syn-1") {
				t.Errorf("a syndic is silent: exit %d, %s", code, out)
			}
			d.work.Wait()
		}
	})
}

// TestSaltConfigDump: all options are printed, with defaults, complete paths and no secret.
func TestSaltConfigDump(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte("root_dir: "+dir+"\nown: 1\n"+
		"cluster_secret: an-open-word-of-sorts\n"+
		"gitfs_remotes: [{'https://x/y.git': [{password: an-open-word}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env, out, errs := newEnv(three(), "")
	env.Load = config.LoadForClient
	code := Salt(t.Context(), []string{"-c", dir, "--config-dump"}, env)
	for _, want := range []string{"cachedir: " + dir + "/var/cache/salt/master\n", "own: 1\n",
		"cluster_secret: '[redacted]'\n", "  - password: '[redacted]'\n", "worker_threads: 5\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in the dump", want)
		}
	}
	if code != 0 || errs.Len() > 0 || strings.Contains(out.String(), "open-word") {
		t.Errorf("exit %d\n%s%s", code, errs, out)
	}
}
