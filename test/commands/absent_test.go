package commands

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// absentScenes are about minions and masters that don't answer. They come last, because they end
// with the masters stopped.
func absentScenes() []scene {
	return []scene{
		{name: "02_silent_minion", alone: true, together: true,
			before: func(t *testing.T, p *pair) {
				p.offer(t, 0, "ghost")
				p.both(func(s *side) { s.must(t, "salt-key", "-a", "ghost", "-y") })
			},
			lines: []line{
				salt("ghost", "test.ping", "--hide-timeout", "-t", "3"),
				salt("ghost", "test.ping", "--out=json", "-t", "1"),
				salt("ghost", "test.ping", "--force-color", "-t", "1"),
				cp("ghost", "DIR/etc/master", "/nowhere/motd", "-t", "1"),
				cp("-C", "ghost", "DIR/etc/master", "/nowhere/motd", "-t", "1"),
			}},
		{name: "02_silent_minion_among_others", alone: true, together: !live(), lines: []line{
			salt("*", "test.ping", "-v", "--summary", "-t", "6").anyOrder(),
			salt("-L", "ghost,web-a", "test.ping", "--static", "--out=json", "-t", "6"),
			salt("-b", "1", "-L", "ghost,web-a", "test.ping", "-t", "6"),
			cp("-L", "ghost,web-a,ghost-2", "DIR/etc/master", "DIR/copied", "-t", "6").anyOrder(),
			cp("-C", "-L", "ghost,web-a,ghost-2", "DIR/etc/master", "DIR/copied", "-t", "6").anyOrder(),
			run("manage.down", "timeout=6"), run("manage.status", "timeout=6"),
			run("salt.execute", "[ghost, web-a, ghost-2]", "test.ping", "tgt_type=list", "timeout=6"),
			run("mine.update", "[web-a, ghost]", "tgt_type=list", "--out=json"),
		}},
		{name: "02_silent_minion_later", alone: true,
			lines: []line{
				salt("ghost", "test.ping", "--async").saves("GHOST"),
				run("jobs.lookup_jid", "$GHOST", "missing=True"),
				run("jobs.exit_success", "$GHOST"), run("jobs.list_job", "$GHOST"),
			},
			do: func(t *testing.T, p *pair) {
				p.both(func(s *side) {
					// -t and gather_job_timeout, from options.
					if r := s.call(t, "salt",
						call{args: []string{"-t", "2", "ghost",
							"test.ping"}}); r.took < 5*time.Second || r.code != 1 {
						t.Errorf("%s did not wait for 2 s and 3 s: %v", s.kind, r)
					}
				})
				p.compare(t, run("manage.down", "removekeys=True", "timeout=6"))
				p.compare(t, key("-L"))
			}},
		{name: "08_minion_stopped", alone: true,
			before: func(t *testing.T, p *pair) {
				p.both(func(s *side) { s.minions["web-b"].End() })
			},
			together: true,
			lines: []line{
				salt("web-b", "test.ping", "-t", "1"),
				run("manage.not_present").unlike("Minions on one address",
					prints("- web-b\n", "", 0)),
			}},
		{name: "40_master_stopped", alone: true,
			before: func(t *testing.T, p *pair) {
				p.offer(t, 0, "late-1")
				p.both(func(s *side) { s.End() })
			},
			lines: []line{
				key("-L"), key("-l", "un"), key("-L", "--out=json"), key("-p", "late-1"),
				key("-f", "late-1").unlike("Fingerprints", bodies),
				key("-a", "late-1", "-y").unlike("Keys without a master",
					func(_, ours result) error {
						if ours.code != 1 ||
							!strings.HasPrefix(ours.stderr, "ERROR: the master does not run; ") ||
							strings.Contains(ours.stdout, "accepted.") {
							return errors.New("want a refusal with the reason")
						}
						return nil
					}),
				key("-L").unlike("Keys without a master",
					begins("Accepted Keys:\nweb-a\nweb-b\nDenied Keys:\nUnaccepted Keys:\nlate-1\n",
						"", 0)),
			}},
	}
}
