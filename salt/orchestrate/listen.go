package orchestrate

import (
	"context"
	"slices"

	"clustermaster/value"
)

// listener is a state whose mod_watch runs at the end if one of other states changed.
type listener struct {
	module, id string
	name       any
	to         []any
}

// matches reports whether a module and an id or name refer to the chunk.
func (ch *chunk) matches(module string, name any) bool {
	return ch.module == module && (name == any(ch.module) || name == any(ch.id) || name == ch.name)
}

// listeners runs mod_watch of the states that listen to changed ones: Salt's call_listen.
func (x *run) listeners(ctx context.Context, chunks []*chunk, ret *returns) error {
	var all []listener // a state with a trial run counts twice, as in the count of events
	for _, ch := range chunks {
		if v, ok := ch.get("listen"); ok {
			to, _ := v.([]any)
			all = append(all, listener{ch.module, ch.id, ch.name, to})
		}
		v, _ := ch.get("listen_in")
		list, _ := v.([]any)
		for _, in := range list {
			m, _ := in.(value.Map)
			for _, p := range m {
				all = append(all, listener{value.Str(p.Key), value.Str(p.Value), "lookup",
					[]any{value.Map{{Key: ch.module, Value: ch.id}}}})
			}
		}
	}
	chunks = distinctChunks(chunks)
	var watchers []*chunk
	count := 0
	missing := newReturns()
	steps := 0
	for _, l := range all {
		for _, to := range l.to {
			if steps += len(chunks); steps > maxWork {
				return errTooMuch
			}
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			m, ok := to.(value.Map)
			if !ok {
				i := slices.IndexFunc(chunks, func(ch *chunk) bool {
					return any(ch.id) == to ||
						ch.name == to
				})
				if i < 0 {
					continue
				}
				m = value.Map{{Key: chunks[i].module, Value: chunks[i].id}}
			}
			for _, p := range m {
				found, fires := x.listen(l, value.Str(p.Key), p.Value, chunks, ret, missing)
				watchers = append(watchers, found...)
				count += fires * len(found)
			}
		}
	}
	for _, ch := range watchers {
		x.graph.add(ch)
	}
	more, err := x.chunks(ctx, watchers, count)
	if err != nil {
		return err
	}
	ret.update(more)
	for _, tag := range missing.tags {
		ret.set(tag, missing.by[tag].Set("__run_num__", x.number))
		x.number++
	}
	return nil
}

// listen makes the chunks of one listener for the states that it listens to; fires is the number of
// those that changed.
func (x *run) listen(l listener, module string, name any, chunks []*chunk, ret,
	missing *returns) (out []*chunk, fires int) {
	absent := func(module string, name any) {
		text := value.Str(name)
		tag := "Listen_Error_|-listen_" + text + "_|-listen_" + module + "_|-Listen_Error"
		missing.set(tag, value.Map{
			{Key: "comment", Value: "Referenced state " + module + ": " + text + " does not exist"},
			{Key: "name", Value: "listen_" + module + ":" + text},
			{Key: "result", Value: false}, {Key: "changes", Value: value.Map{}},
		})
	}
	found := false
	for _, on := range chunks {
		if on.matches(module, name) {
			found = true
			had, _ := ret.by[on.tag()].Get("changes")
			if value.Truth(had) {
				fires++
			}
		}
	}
	if !found {
		absent(module, name)
	}
	if fires == 0 {
		return nil, 0
	}
	for _, ch := range chunks {
		if ch.matches(l.module, any(l.id)) {
			low := ch.as("mod_watch")
			low.low = low.low.Without(append(kindNames[:], "onfail_stop")...).Set("__id__",
				"listener_"+ch.id)
			low.id = "listener_" + ch.id
			out = append(out, low)
		}
	}
	if out == nil {
		absent(l.module, l.id)
	}
	return out, fires
}

// distinctChunks removes the second place of a chunk with a trial run.
func distinctChunks(chunks []*chunk) []*chunk {
	seen := make(map[*chunk]bool, len(chunks))
	var out []*chunk
	for _, ch := range chunks {
		if !seen[ch] {
			seen[ch] = true
			out = append(out, ch)
		}
	}
	return out
}

// beacons runs mod_beacon of the states that request it.
func (x *run) beacons(ctx context.Context, chunks []*chunk, ret *returns) error {
	var all []*chunk
	for _, ch := range distinctChunks(chunks) {
		if _, ok := ch.get("beacon"); !ok {
			continue
		}
		b := ch.as("mod_beacon")
		b.id = "beacon_" + ch.id
		b.low = b.low.Set("__id__", b.id)
		x.graph.add(b)
		all = append(all, b)
	}
	more, err := x.chunks(ctx, all, len(all))
	if err != nil {
		return err
	}
	ret.update(more)
	return nil
}
