package pythonhost

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// sqlReturner is a returner as Salt's are: it writes rows, and logs what it could not write.
const sqlReturner = `
import json
import logging
import os

log = logging.getLogger(__name__)


def _write(name, *row):
    if os.path.exists(__opts__["root_dir"] + "/down"):
        raise OSError("the database is down")
    with open(__opts__["root_dir"] + "/rows", "a") as file:
        file.write(name + " " + json.dumps(row, sort_keys=True) + "\n")


def event_return(events):
    try:
        for event in events:
            _write("event", event)
    except OSError:
        log.critical("events could not be written")


def returner(ret):
    try:
        if ret["return"] == "hang":
            import time

            time.sleep(600)
        if ret["return"] == "slow":
            import time

            time.sleep(0.2)
        if ret["return"] == "odd":
            log.error("an odd return")
        _write("return", ret)
    except OSError:
        log.exception("a return could not be written")


def save_load(jid, load, minions=None):
    _write("load", jid, load, minions)


def update_endtime(jid, time):
    _write("end", jid, time)


def get_load(jid):
    return {"jid": jid, "id": __opts__["id"]}
`

// TestReturners hands events and jobs to a returner, with each release, and hears of what it could
// not write whether it raises or logs.
func TestReturners(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, release, map[string]string{"ext/returners/rows.py": sqlReturner},
				func(o *Options) { o.Timeout = 5 * time.Second })
			session := s.host.Keeper()
			defer session.Close()
			give := func(items ...any) string {
				t.Helper()
				n, why, err := session.HandOver(t.Context(), "rows", items, time.Minute)
				return fmt.Sprint(n, " ", why, " ", err)
			}
			event := func(tag string) value.Map {
				return value.Map{{Key: "kind", Value: "event"}, {Key: "tag", Value: tag},
					{Key: "data", Value: value.Map{{Key: "n", Value: int64(1)}}}}
			}
			load := value.Map{{Key: "fun", Value: "test.ping"}}
			job := value.Map{{Key: "kind", Value: "load"}, {Key: "jid", Value: "1"},
				{Key: "load", Value: load}, {Key: "minions", Value: []any{"web1"}}}
			ret := func(v any) value.Map {
				return value.Map{{Key: "kind", Value: "return"}, {Key: "jid", Value: "1"},
					{Key: "load", Value: value.Map{{Key: "return", Value: v}}},
					{Key: "end", Value: "now"}}
			}
			down := filepath.Join(s.root, "down")
			if got := give(event("a"), event("b"), job, ret(true)); got != "4  <nil>" {
				t.Errorf("all at once: %s", got)
			}
			if err := os.WriteFile(down, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := give(event("c")); got != "0 events could not be written <nil>" {
				t.Errorf("what it logs: %s", got)
			}
			if got := give(job); got != "0 OSError: the database is down <nil>" {
				t.Errorf("what it raises: %s", got)
			}
			if err := os.Remove(down); err != nil {
				t.Fatal(err)
			}
			if got := give(ret("odd")); got != "1  <nil>" || !s.lines.has("an odd return") {
				t.Errorf("a record that tells of no failure: %s", got)
			}
			if got := give(value.Map{{Key: "kind", Value: "result"}, {Key: "load",
				Value: value.Map{{Key: "return", Value: "hang"}}}}); !strings.Contains(got,
				"took longer than 5s") {
				t.Errorf("one that hangs: %s", got)
			}
			n, why, err := session.HandOver(t.Context(), "none", []any{job}, time.Minute)
			if n != 0 || err != nil || !strings.Contains(why, "'none.save_load' is not available") {
				t.Errorf("an unknown returner: %d %s %v", n, why, err)
			}
			slow := []any{ret("slow"), ret("slow"), ret("slow")}
			n, why, err = session.HandOver(t.Context(), "rows", slow, 300*time.Millisecond)
			if n < 1 || n == len(slow) || why != "" || err != nil {
				t.Errorf("%d slow items of %d within a time: %s %v", n, len(slow), why, err)
			}
			written := strings.Repeat("load [\"1\", {\"return\": \"slow\"}, null]\n"+
				"return [{\"return\": \"slow\"}]\nend [\"1\", \"now\"]\n", n)
			v, err := session.Call(t.Context(), Call{Kind: Returner, Fun: "rows.get_load",
				Args: []any{"7"}})
			if fmt.Sprint(v) != "[{jid 7} {id master1}]" || err != nil {
				t.Errorf("a read: %v %v", v, err)
			}
			rows, err := os.ReadFile(filepath.Join(s.root, "rows"))
			want := `event [{"data": {"n": 1}, "tag": "a"}]
event [{"data": {"n": 1}, "tag": "b"}]
load ["1", {"fun": "test.ping"}, ["web1"]]
load ["1", {"return": true}, null]
return [{"return": true}]
end ["1", "now"]
load ["1", {"return": "odd"}, null]
return [{"return": "odd"}]
end ["1", "now"]
`
			if want += written; string(rows) != want || err != nil {
				t.Errorf("rows %v\n%swant\n%s", err, rows, want)
			}
		})
	}
}
