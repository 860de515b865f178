package statemodules

import (
	"context"
	"fmt"
	"strings"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// waitForEvent is salt.wait_for_event. It returns when events of any master have named each id of a
// list, or after its timeout.
func (o orchestrator) waitForEvent(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	ret := ended(started(c.Name), false, "")
	if c.Test {
		return ended(ret, nil, fmt.Sprintf("Orchestration would wait for event '%s'", c.Name)), nil
	}
	if node := value.Str(c.Arg("node")); node != "master" {
		return ended(ret, false,
			fmt.Sprintf("There are no events of node '%s' on a master; leave node out", node)), nil
	}
	limit, ok := seconds(c.Arg("timeout"))
	if !ok {
		return nil, fmt.Errorf("timeout must be a number of seconds, not %s",
			value.Repr(c.Arg("timeout")))
	}
	left, ok := c.Arg("id_list").([]any)
	if !ok {
		left = []any{c.Arg("id_list")}
	}
	events, err := o.d.Minions.Subscribe(ctx, globPrefix(c.Name))
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", c.Name, err)
	}
	defer events.Close()
	w := waiting{tag: c.Name, key: value.Str(c.Arg("event_id")), left: append([]any{}, left...)}
	begun := time.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for len(w.left) > 0 {
		select {
		case e, open := <-events.C():
			switch {
			case !open:
				return nil, gather.ErrMasterLost
			case e.Lost:
				o.d.Log.Warn("events were lost while a state waited for them; it may wait until its timeout",
					"tag", c.Name, "jid", c.JID)
			default:
				w.take(e)
			}
		case <-timer.C:
			return ended(w.seenIn(ret), false, "Timeout value reached."), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return ended(w.seenIn(ret), true, fmt.Sprintf("All events seen in %s seconds.",
		value.Float(time.Since(begun).Seconds()))), nil
}

// waiting is what a state still waits for, and the ids that it has seen.
type waiting struct {
	tag, key string
	left     []any
	seen     []any
}

// take checks one event for ids.
func (w *waiting) take(e gather.Event) {
	if !fnmatch.Match(w.tag, e.Tag) {
		return
	}
	data, err := e.Data.Map()
	if err != nil {
		return
	}
	found, _ := data.Get(w.key)
	if found == nil {
		inner, _ := data.Get("data")
		m, _ := inner.(value.Map)
		found, _ = m.Get(w.key)
	}
	switch found := found.(type) {
	case nil:
	case []any: // each id that it names is done, even if the list holds it twice
		var rest []any
		for _, id := range w.left {
			if containsValue(found, id) {
				w.seen = append(w.seen, id)
			} else {
				rest = append(rest, id)
			}
		}
		w.left = rest
	default:
		for i, id := range w.left {
			if sameValue(id, found) {
				w.seen = append(w.seen, found)
				w.left = append(w.left[:i], w.left[i+1:]...)
				return
			}
		}
	}
}

func (w *waiting) seenIn(ret value.Map) value.Map {
	if len(w.seen) == 0 {
		return ret
	}
	return ret.Set("changes", value.Map{{Key: "minions_seen", Value: w.seen}})
}

func containsValue(list []any, v any) bool {
	for _, e := range list {
		if sameValue(e, v) {
			return true
		}
	}
	return false
}

// sameValue compares texts and numbers, the types of ids, as Python does.
func sameValue(a, b any) bool { return value.Repr(a) == value.Repr(b) }

// globPrefix is the literal beginning of all tags that match a glob. The other masters
// then need not send the rest.
func globPrefix(glob string) string {
	if i := strings.IndexAny(glob, "*?["); i >= 0 {
		return glob[:i]
	}
	return glob
}

// seconds reads a number of seconds, bounded by 0 and maxSeconds. The bool
// is false for other types.
func seconds(v any) (time.Duration, bool) {
	switch v := v.(type) {
	case int64:
		return time.Duration(min(max(v, 0), maxSeconds)) * time.Second, true
	case float64:
		return time.Duration(min(max(v, 0), maxSeconds) * float64(time.Second)), true
	}
	return 0, false
}
