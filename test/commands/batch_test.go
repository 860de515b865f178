package commands

import (
	"errors"
	"strings"
)

const badBatch = "Invalid batch specification 'foo': must be an integer or percentage string like '10' or '25%'.\n"

// whichever hides which of the two minions is meant: a batch takes them in the order of their
// answers.
func (l line) whichever() line { return l.mask(`web-[ab]`, "web-N") }

func batchScenes() []scene {
	return []scene{
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
		{name: "15_failhard", lines: []line{
			salt("-b", "1", "--failhard", "web-*", "cmd.run", "exit 3").whichever(),
			salt("-b", "1", "--failhard", "web-*", "test.ping").whichever(),
		}},
	}
}
