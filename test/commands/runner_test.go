package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// ownText checks that ours ends like Salt's command, with its own text that begins as given.
func ownText(stdout string) func(theirs, ours result) error {
	return func(theirs, ours result) error {
		if ours.code != theirs.code || ours.stderr != theirs.stderr ||
			!strings.HasPrefix(ours.stdout, stdout) {
			return fmt.Errorf("exit code and standard error are to be Salt's, and standard output begins\n%s", stdout)
		}
		return nil
	}
}

// documented are the lines of documentation below the functions' names.
const documented = `(?m)^( .*)?\n`

const wrongSleep = "\nPassed invalid arguments: sleep() takes from 0 to 1 positional arguments but 3 were given\n\nUsage:\n\n"

func runnerScenes() []scene {
	return []scene{
		{name: "41_runner_calls", lines: []line{
			run("nosuch.fun"), run("nosuch"), run("nosuch.fun", "--out=json"),
			run("test.arg", "1", "a=b", "c=[1, 2]", "x==y"),
			run("test.arg", "1", "a=b", "--out=json"), run("test.arg", "1", "a=b", "--out=yaml"),
			run("test.arg", "--no-parse", "a", "a=1", "b=1"),
			run("--args-stdin", "test.arg").in("1\na=b\n-c\nDIR/etc\n"),
			run("test.raw_arg", "1", "__a=b").mask(`(?m)^    __pub.*\n(?:        .*\n)*`, ""),
			run("test.metasyntactic"), run("test.metasyntactic", "locality=uk"),
			run("test.metasyntactic", "locality=de"),
			run("test.stdout_print"), run("test.stdout_print", "--quiet"),
			run("test.stdout_print", "--out=json"),
			run("test.sleep", "0.1"), run("test.sleep", "s_time=0.1", "--out=json"),
			run("test.sleep", "a", "b", "c").unlike("Texts of the runner functions",
				ownText(wrongSleep)),
			run("jobs.lookup_jid").unlike("Texts of the runner functions",
				ownText("\nPassed invalid arguments: lookup_jid() missing 1 required positional argument: 'jid'\n\nUsage:\n\n")),
			run("test.sleep", "nosuch=1").unlike("Texts of the runner functions",
				ownText("test.sleep:\n\n        Sleep ")),
			run("jobs.li").mask(documented, ""),
			run("jobs.list_jobs", "nosuch=1").mask(documented, ""),
			run("jobs.exit").unlike("Texts of the runner functions",
				ownText("jobs.exit_success:\n\n        ")),
			run("event.send", "my/tag", "{a: 1}"), run("event.send", "my/tag"),
			run("event.send", "my/tag", "text").unlike("Python's tracebacks",
				begins("Exception occurred in runner event.send: ", "", 1)),
			run("test.arg", "1", "--async"),
			run("--jid", "$JUST244628", "test.arg", "1"),
			run("-d", "test.arg").unlike("Texts of the runner functions",
				ownText("test.arg:\n\n    ")),
			run("-d", "nosuch"), run("-d", "a", "b"), run("--foo"), run("-t", "x", "test.arg"),
			run().unlike("Texts of the runner functions", ownText("auth.")),
			run("test.arg", "-a", "pam", "--username", "x", "--password", "y"),
			run("-c", "DIR/down", "test.arg", "1").unlike("Runners without a master", prints(
				"Exception occurred in runner test.arg: The salt master could not be contacted. Is master running?\n", "[ERROR   ] Unable to connect to the salt master publisher at DIR/down/var/cache/salt/master/.salt-unix\n", 1)),
		}},
		{name: "42_runner_calls_are_jobs", lines: []line{
			run("--jid", "$JUST244630", "test.arg", "1", "a=b"),
			run("jobs.lookup_jid", "$JUST244630", "--out=json"),
			run("jobs.list_job", "$JUST244630"),
		}, do: func(t *testing.T, p *pair) {
			p.watch(t, run("state.event", "salt/run/$JUST244632/*", "count=2").blocks(`^salt/`),
				calling(t, "--jid", "$JUST244632", "test.arg", "1", "a=b"))
		}},
		{name: "43_state_event", do: func(t *testing.T, p *pair) {
			p.watch(t, run("state.event", "my/event/[ab]", "count=1"),
				calling(t, "event.send", "my/event/a", "{b: 1, a: [x]}"))
			p.watch(t, run("state.event", "my/pretty", "pretty=True", "count=1"),
				calling(t, "event.send", "my/pretty", "{b: {d: 1, c: 2}, a: null}"))
			p.watch(t, run("state.event", "my/*/two", "count=2", "quiet=True"),
				calling(t, "event.send", "my/x/two", "{n: 2}"))
		}},
		{name: "44_jobs", lines: []line{
			salt("web-a", "test.arg", "1", "a=b", "--metadata", "{who: me}",
				"--show-jid").saves("PLAIN").mask(`JID`, "JID"),
			salt("web-a", "cmd.run", "exit 3", "--show-jid").saves("FAILED"),
			salt("web-*", "test.ping,test.echo", ",", "x",
				"--show-jid").saves("COMPOUND").anyOrder(),
			salt("web-a", "state.single", "test.nop", "name=x", "--show-jid").saves("STATE"),
			run("jobs.lookup_jid", "$PLAIN"), run("jobs.lookup_jid", "$PLAIN", "--out=json"),
			run("jobs.lookup_jid", "$FAILED"), run("jobs.lookup_jid", "$STATE"),
			run("jobs.lookup_jid", "$COMPOUND").blocks(`^web-`),
			run("jobs.lookup_jid", "$PLAIN", "returned=False"),
			run("jobs.lookup_jid", "$PLAIN", "missing=True"),
			run("jobs.lookup_jid", "20001121093513244628"), run("jobs.lookup_jid", "nonsense"),
			run("jobs.list_job", "$PLAIN"), run("jobs.list_job", "$FAILED"),
			run("jobs.list_job", "$COMPOUND").mask(`(?m)^ *- web-.*\n`, ""),
			run("jobs.list_job", "20001121093513244628"),
			run("jobs.print_job", "$FAILED"), run("jobs.print_job", "20001121093513244628"),
			run("jobs.exit_success", "$PLAIN"), run("jobs.exit_success", "$FAILED"),
			run("jobs.exit_success", "20001121093513244628"),
			run("jobs.list_jobs", "search_metadata={who: me}"),
			run("jobs.list_jobs", "search_metadata={who: nobody}"),
			run("jobs.list_jobs", "start_time=2000, Jan 1", "end_time=2000, Jan 2"),
			salt("web-a", "test.kwarg", "x=1", "--show-jid").mask(`(?s)web-a:.*`, ""),
			run("jobs.list_jobs",
				"search_function=test.kw*,no").unlike("Searching jobs of several functions",
				func(_, ours result) error {
					if ours.code != 0 || strings.Count(ours.stdout, "JID:") != 1 ||
						!strings.Contains(ours.stdout, "test.kwarg") {
						return errors.New("want the one job")
					}
					return nil
				}),
			run("jobs.last_run", "metadata={who: me}"),
			run("jobs.last_run", "metadata={who: nobody}"),
		}},
		{name: "44_jobs_active", lines: []line{
			run("jobs.master").mask(`(pid:\n *)[0-9]+`, "${1}PID"),
			salt("web-a", "test.sleep", "12", "--async").saves("SLEEP"),
			run("jobs.active", "--out=json").until(`"web-a": `).mask(`("web-[ab]": )[0-9]+`,
				"${1}PID"),
		}, alone: true},
		{name: "45_manage", lines: []line{
			run("manage.up"), run("manage.down"), run("manage.status"),
			run("manage.status", "--out=json"), run("manage.versions"),
			run("manage.present"), run("manage.not_present"), run("manage.joined"),
			run("manage.list_state"), run("manage.list_not_state"), run("manage.alived"),
			run("manage.allowed"),
			run("manage.reaped"), run("manage.not_alived"), run("manage.up", "tgt=web-a"),
			run("manage.status", "tgt=web-a,x", "tgt_type=list"),
			run("manage.present", "subset=[web-b]"),
		}, alone: true},
		{name: "47_cluster", lines: []line{
			run("cluster.members", "--out=json").unlike("cluster.members and cluster.ring_info",
				sameKeys("node_id", "voters", "learners", "membership_version", "voter_count",
					"learner_count",
					"leader_id", "term", "unhealthy_voters", "recently_demoted")),
			run("cluster.ring_info", "--out=json").unlike("cluster.members and cluster.ring_info",
				sameKeys("is_clustered", "node_count", "nodes", "vnodes")),
		}},
		{name: "49_runners_that_are_gone",
			lines: []line{run("virt.list"), run("lxc.list"), run("thin.generate")}},
		{name: "caches", lines: []line{
			run("cache.grains", "web-a", "--out=json").mask(`(?s)\{.*"e2e": ("?[0-9.]+"?).*\}`,
				"$1"), run("cache.grains", "nosuch"),
			run("salt.execute", "web-a", "test.arg", "arg=[1]", "kwarg={a: b}", "--out=json"),
			run("config.get", "timeout"), run("config.get", "nosuch"),
			run("config.get", "nosuch", "x"), run("config.get", "nodegroups:one"),
		}},
	}
}

// sameKeys checks that both print a map with these keys in this order. There may be others.
func sameKeys(names ...string) func(theirs, ours result) error {
	return func(theirs, ours result) error {
		for _, r := range []result{theirs, ours} {
			var m map[string]any
			if err := json.Unmarshal([]byte(r.stdout), &m); err != nil || r.code != 0 {
				return fmt.Errorf("no JSON: %w", err)
			}
			at := -1
			for _, n := range names {
				i := strings.Index(r.stdout, fmt.Sprintf("\n    %q: ", n))
				if i <= at {
					return fmt.Errorf("%s is missing or comes too early", n)
				}
				at = i
			}
		}
		return nil
	}
}

// watch runs a line with state.event on both sides, and repeats a step until the events it waits
// for have come. The output must be equal.
func (p *pair) watch(t *testing.T, listen line, step func(s *side)) {
	t.Helper()
	listens := func(s *side) (r result) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r = listen.on(t, s)
		}()
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-done:
			case <-tick.C:
				step(s)
				continue
			}
			tick.Stop()
			return r
		}
	}
	if theirs, ours := p.ask(t, p.answers.Turn(), listen, listens); !theirs.equal(ours) {
		t.Errorf("salt-run %q\n--- Salt: %v\n--- ours: %v", listen.args, theirs, ours)
	}
}

// calling makes a step of a runner call.
func calling(t *testing.T, args ...string) func(s *side) {
	return func(s *side) { s.must(t, "salt-run", args...) }
}
