package conformance

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// TestOrdersReachMinions publishes on the request port to real minions of three releases. What
// test.arg shows of a load is the same from our master as from Salt's, and so are the events of the
// returns.
func TestOrdersReachMinions(t *testing.T) {
	t.Parallel()
	releases := []string{"3006.28", "3007.15", "3008.3"}
	arg := []any{"x", int64(1), dict("__kwarg__", true, "k", []any{"v"})}
	orders := []ordered{
		{name: "plain", load: jobOf("fun", "test.arg", "arg", arg)},
		{name: "metadata", load: jobOf("fun", "test.arg", "arg", arg, "kwargs",
			dict("metadata", dict("ticket", int64(5))))},
		{name: "all that minions see", load: jobOf("fun", "test.arg", "arg", arg, "to", int64(7),
			"jid", "20260101000000000077", "kwargs", dict(
				"metadata", dict("a", "b"), "ret_config", "alt", "ret_kwargs", dict("r", int64(1)),
				"module_executors", []any{"direct_call"}, "executor_opts", dict("o", "p"),
				"master_id", "another_master", "id", "somebody", "show_jid", true, "raw", true,
				"nocache", false, "x", "y"))},
		{name: "two functions", load: jobOf("fun", []any{"test.echo", "test.ping"}, "arg",
			[]any{[]any{"e"}, []any{}})},
		{name: "start_event", load: jobOf("kwargs", dict("start_event", true))},
	}
	var asked []string
	for _, release := range releases {
		for _, o := range orders {
			asked = append(asked, worded(id("min", release)+" "+o.name, o.load))
		}
	}
	got := map[kind][]string{}
	for _, k := range kinds() {
		m := newMaster(t, k, variant{name: "orders",
			options: "enable_clear_commands: True\nauto_accept: True\n"})
		m.start(t)
		m.events = listen(t, t, m)
		e2e.Eventually(t, 20*time.Second, "root has a key",
			func() error { return m.hasKey("root") })
		var minions []*e2e.Minion
		for _, release := range releases {
			minion := e2e.NewMinion(t, m.Dir,
				e2e.MinionOptions{ID: id("min", release), Release: release, Master: m.Addr,
					Extra: quick})
			minion.Run(t)
			minions = append(minions, minion)
		}
		for i, minion := range minions {
			m.events.wait(t, 0, 120*time.Second, minion.ID+" has started",
				func(h happening) bool { return h.Tag == "salt/minion/"+minion.ID+"/start" })
			for _, o := range orders {
				load := setIn(o.load, "tgt", minion.ID)
				if jid := load.String("jid"); jid != "" {
					load = setIn(load, "jid", fmt.Sprint(jid[:19], i))
				}
				mark := m.events.mark()
				reply := show(t, m.clear(t, 3, m.filled(t, load)))
				ret, err := m.events.find(mark, 60*time.Second,
					func(h happening) bool {
						return h.Data["return"] != nil &&
							h.Data["id"] == minion.ID
					})
				if err != nil {
					t.Fatalf("%s: %s to %s: %s: %v", k, o.name, minion.ID, reply, err)
				}
				for _, varies := range []string{"_stamp", "ts", "pid"} {
					delete(ret.Data, varies)
				}
				text, err := json.Marshal(ret.Data)
				if err != nil {
					t.Fatal(err)
				}
				started := len(m.events.since(mark,
					func(h happening) bool {
						return h.Tag == "salt/job/"+ret.Data["jid"].(string)+
							"/start/"+minion.ID
					}))
				got[k] = append(got[k], jids.ReplaceAllString(ret.Tag+" "+string(text), "JID")+
					string(rune('0'+started)))
			}
		}
		for _, minion := range minions {
			minion.End()
		}
		m.Stop(t, 20*time.Second)
	}
	for i, want := range saltsText(t, "orders_to_minions", quick, asked, got) {
		if got[ours][i] != want {
			t.Errorf("%s:\nours   %s\nSalt's %s", asked[i], got[ours][i], want)
		}
	}
	t.Logf("%d orders to real minions", len(asked))
}
