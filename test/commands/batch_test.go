package commands

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clustermaster/test/e2e"
)

const badBatch = "Invalid batch specification 'foo': must be an integer or percentage string like '10' or '25%'.\n"

// whichever hides which of the two minions is meant: a batch takes them in the order of their
// answers.
func (l line) whichever() line { return l.mask(`web-[ab]`, "web-N") }

// unread has nobody read the line's output. file is how ours shows the line's file.
func (l line) unread(file string) line {
	l.call.unread = true
	return l.unlike("Closed pipes", prints(file, "", 0))
}

func batchScenes() []scene {
	return []scene{
		// A reader that leaves, as head does, ends no command, and above all no batch.
		{name: "14_unread", before: func(t *testing.T, p *pair) {
			p.both(func(s *side) {
				if err := os.WriteFile(filepath.Join(s.Dir, "src.txt"), []byte("hello\n"),
					0o644); err != nil {
					t.Error(err)
				}
			})
		}, lines: []line{
			salt("-b", "1", "web-*", "cmd.run", "echo x >> DIR/unread").writes("DIR/unread").unread(
				"in the file:\nx\nx\n"),
			salt("web-*", "cmd.run", "echo y >> DIR/unread").writes("DIR/unread").unread(
				"in the file:\nx\nx\ny\ny\n"),
			salt("--static", "web-*", "test.ping").unread(""),
			salt("web-a", "test.ping", "--out=json").unread(""),
			salt("web-a", "sys.doc", "test.ping").unread(""),
			key("-L").unread(""), run("manage.up").unread(""),
			cp("web-a", "DIR/src.txt", "DIR/copied").writes("DIR/copied").unread(
				"in the file:\nhello\n"),
		}, do: streamsEnd},
		{name: "14_batch", lines: []line{
			salt("-b", "1", "web-*", "test.ping").whichever(),
			salt("-b", "50%", "web-*", "test.ping").whichever(),
			salt("-b", "0", "web-*", "test.ping").whichever(),
			salt("-b", "1", "web-*", "test.ping", "--out=json").whichever(),
			salt("-b", "1", "web-*", "test.ping", "--out=txt").whichever(),
			salt("-b", "5", "web-a", "test.ping", "-v"),
			salt("-b", "5", "web-a", "test.ping", "--show-jid"),
			salt("-b", "1", "web-a", "cmd.run", "exit 3"),
			salt("-b", "1", "web-a", "cmd.run", "exit 3", "--summary"),
			salt("-b", "1", "web-a", "test.ping", "--static"),
			salt("--batch-size=1", "--batch-wait=1", "web-*", "test.ping").whichever(),
			salt("-b", "1", "nosuch", "test.ping"),
			salt("--batch-safe-limit=2", "--batch-safe-size=1", "web-*", "test.ping").whichever(),
			salt("--batch-safe-limit=3", "web-a", "test.ping"),
			salt("-b", "foo", "web-*", "test.ping").whichever().unlike("Python's tracebacks",
				func(theirs, ours result) error {
					if ours.code != theirs.code || ours.stdout != theirs.stdout ||
						!strings.Contains(theirs.stderr, badBatch) ||
						ours.stderr != "ERROR: "+badBatch {
						return errors.New("exit code and text are to be Salt's, without the traceback")
					}
					return nil
				}),
		}},
		{name: "14_batch_events", do: batchEvents, alone: true},
		{name: "15_failhard", lines: []line{
			salt("-b", "1", "--failhard", "web-*", "cmd.run", "exit 3").whichever(),
			salt("-b", "1", "--failhard", "web-*", "test.ping").whichever(),
		}},
		{name: "15_options_of_the_file", before: withOptions(map[string]string{
			"safe": "batch_safe_limit: 2\nbatch_safe_size: 1\n", "hard": "failhard: True\nbatch: 1\n",
			"wait": "batch: 50%\nbatch_wait: 0.1\n", "static": "static: True\noutput: json\n",
			"async": "async: True\n", "subset": "subset: 1\ncli_summary: True\n",
			"delimiter": "delimiter: '|'\nmetadata: {who: you}\nreturn: local\n",
			"login":     "eauth: file\nusername: frank\npassword: pass-frank\nverbose: True\n",
			"quiet":     "quiet: True\n", "chunked": "chunked: True\n",
		}), lines: []line{
			salt("-c", "DIR/safe", "web-*", "test.ping").whichever(),
			salt("-c", "DIR/safe", "web-a", "test.ping"),
			salt("-c", "DIR/safe", "--batch-safe-limit=3", "web-*", "test.ping").anyOrder(),
			salt("-c", "DIR/safe", "-s", "--out=txt", "web-*", "test.ping").anyOrder(),
			salt("-c", "DIR/hard", "web-*", "cmd.run", "exit 3").whichever(),
			salt("-c", "DIR/wait", "web-*", "test.ping").whichever(),
			salt("-c", "DIR/static", "web-a", "test.ping"),
			salt("-c", "DIR/async", "web-a", "test.ping"),
			salt("-c", "DIR/subset", "web-a", "test.ping"),
			salt("-c", "DIR/delimiter", "-C", "web-a and G@os|*", "test.arg", "--out=json"),
			salt("-c", "DIR/login", "web-a", "test.version"),
			run("-c", "DIR/quiet", "test.arg", "x"),
			run("-c", "DIR/async", "test.arg", "x"),
			cp("-c", "DIR/chunked", "web-a", "DIR/etc/master", "DIR/chunked/"),
		}},
	}
}

// lastOfBatch is the tag of a batch's last event.
var lastOfBatch = regexp.MustCompile(`^salt/batch/.*/(complete|halted)$`)

// batchEvents compares the events salt/batch/* of batches, with their data.
func batchEvents(t *testing.T, p *pair) {
	heard := map[*side]*listener{}
	for _, s := range p.sides() {
		heard[s] = s.listen(t)
	}
	for _, l := range []line{
		salt("-b", "1", "web-*", "test.ping").whichever(),
		salt("-b", "100%", "-L", "web-a", "test.arg", "1", "a=b",
			"--return=local").mask(`"tgt_type": "(glob|list)"`, "TYPE"), // Salt always says glob
		salt("-b", "1", "--batch-wait=0.1", "-t", "7", "web-a", "test.ping,test.arg", ",", "x"),
		salt("-b", "1", "--failhard", "web-*", "cmd.run", "exit 3").whichever(),
		salt("-s", "web-a", "test.ping"),
		salt("-b", "1", "-a", "file", "--username=frank", "--password=pass-frank", "web-b",
			"test.ping"),
	} {
		l := l.mask(`\b[0-9]{10}\.[0-9]+\b`, "SECONDS")
		theirs, ours := p.ask(t, p.answers.Turn(), l, func(s *side) result {
			r := l.on(t, s)
			events := slices.DeleteFunc(heard[s].untilLike(t, lastOfBatch),
				func(e string) bool { return !strings.HasPrefix(e, "salt/batch/") })
			r.stdout = l.hide(s, strings.Join(events, ""))
			return r
		})
		if !theirs.equal(ours) {
			t.Errorf("salt %q\n--- Salt: %v\n--- ours: %v", l.args, theirs, ours)
		}
		if t.Failed() { // do not wait for the events of each line
			return
		}
	}
}

// withOptions makes folders with the configuration of a side's master and more options.
func withOptions(folders map[string]string) func(*testing.T, *pair) {
	return func(t *testing.T, p *pair) {
		for _, s := range p.sides() {
			for name, options := range folders {
				s.write(t, filepath.Join(name, "master"), s.Config(t)+options)
			}
		}
	}
}

// withFiles makes files in the folder of each side.
func withFiles(files map[string]string) func(*testing.T, *pair) {
	return func(t *testing.T, p *pair) {
		for _, s := range p.sides() {
			for name, text := range files {
				s.write(t, name, text)
			}
		}
	}
}

func (s *side) write(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join(s.Dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// streamsEnd: a stream of events ends when nobody reads it any more.
func streamsEnd(t *testing.T, p *pair) {
	done := make(chan result, 1)
	go func() {
		done <- p.ours.call(t, "salt-run", call{args: []string{"state.event"}, unread: true})
	}()
	e2e.Eventually(t, commandLimit, "the end of a stream that nobody reads", func() error {
		p.ours.must(t, "salt", "web-a", "test.ping")
		select {
		case r := <-done:
			if r.code != 0 || r.stderr != "" {
				t.Error(r)
			}
			return nil
		default:
			return errors.New("it still runs")
		}
	})
}
