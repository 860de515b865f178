package master

import (
	"context"
	"fmt"
	"strings"

	"clustermaster/serve/event"
	"clustermaster/value"
	"clustermaster/wire"
)

// Bounds of one batch of events.
const (
	maxTag          = 1024   // bytes
	maxNamedMinions = 100000 // that a syndic names for a job
)

// reserved are the tags that only a master may fire. Salt has fewer, and checks them in batches
// only; this package always checks them.
var reserved = []string{
	"salt/job/*/publish", "salt/job/*/new", "salt/job/*/return", "salt/key", "salt/auth*",
	"salt/cloud/*", "salt/run/*",
	"salt/cluster/*", "salt/wheel/*", "salt/presence/*", "salt/master/*",
}

// minionEvent fires the event or events that a minion sends.
func (m *Master) minionEvent(ctx context.Context, c *call) (any, error) {
	if c.ID == "" {
		return value.Map{}, nil
	}
	if events, ok := c.Load.Get("events"); ok {
		return nil, m.batch(ctx, c, events)
	}
	tag := c.Load.String("tag")
	says := value.Map{{Key: "id", Value: c.ID}}
	if _, ok := c.Load.Get("minions"); ok {
		says = append(says, value.Pair{Key: "minions"})
	}
	if _, ok := c.Load.Get("data"); !ok || !m.mayFire(c, tag, says) {
		return nil, nil
	}
	if m.deps.Commits != nil && (tag == "minion_start" || tag == "salt/minion/"+c.ID+"/start") {
		m.deps.Commits.Started(ctx, c.ID)
	}
	if tag == "_salt_error" { // a function on the minion raised an exception
		m.minionError(c)
	}
	m.deps.Bus.FireRawMap(tag, c.Load)
	m.metrics.events.WithLabelValues("fired").Inc()
	return nil, nil
}

// minionError logs what a minion says of an exception.
func (m *Master) minionError(c *call) {
	data, _ := c.Load.Get("data")
	message, _ := data.Lookup("message").Text()
	if n := m.refused.seldom.Due("_salt_error"); n > 0 {
		m.log.Error("a minion reports an error", "minion", c.ID, "err", shortened(message), "n", n)
	}
}

func (m *Master) batch(ctx context.Context, c *call, events value.Raw) error {
	v, err := events.Unpack()
	if err != nil {
		return fmt.Errorf("decode events: %w", err)
	}
	list, _ := v.([]any)
	base, hasBase := c.Load.Get("pretag")
	pretag, _ := base.Text()
	for _, item := range list {
		entry, ok := item.(value.Map)
		tag := entry.String("tag")
		data := entry
		if v, has := entry.Get("data"); has {
			data, ok = v.(value.Map)
		}
		if !ok || tag == "" || len(tag) > maxTag {
			m.metrics.events.WithLabelValues("dropped").Inc()
			continue
		}
		if hasBase && !base.IsNil() {
			// The copy for a syndic's master. A reserved tag is harmless below another prefix, so
			// check the joined one.
			if joined := tagify(pretag, tag); m.mayFire(c, joined, data) {
				m.deps.Bus.Fire(joined, data)
			}
		}
		if m.mayFire(c, tag, data) {
			m.deps.Bus.Fire(tag, data)
			m.metrics.events.WithLabelValues("fired").Inc()
		}
		if err := m.locally(ctx, c, tag, data); err != nil {
			return err
		}
	}
	return nil
}

// locally handles events that concern the master itself: a syndic names the minions below it that a
// job is for.
func (m *Master) locally(ctx context.Context, c *call, tag string, data value.Map) error {
	if !m.isSyndic(c.ID) {
		return nil
	}
	list, ok := data.Get("minions")
	jid := data.String("jid")
	names, isList := list.([]any)
	if !ok || !isList || !validJID(jid) || len(names) > maxNamedMinions {
		return nil
	}
	ids := make([]string, 0, len(names))
	for _, n := range names {
		if id, ok := n.(string); ok && wire.ValidID(id) {
			ids = append(ids, id)
		}
	}
	if err := m.deps.Jobs.SaveMinions(ctx, jid, c.ID, ids); err != nil {
		return fmt.Errorf("%w: save minions of job %s: %w", errUnacknowledged, jid, err)
	}
	if m.deps.Kept != nil {
		m.deps.Kept.Minions(jid, c.ID, ids)
	}
	return nil
}

// mayFire reports whether a minion may fire an event: not those reserved for masters, none that
// Salt's listeners read as others, and none in another minion's name.
func (m *Master) mayFire(c *call, tag string, data value.Map) bool {
	if tag == "" || len(tag) > maxTag {
		m.metrics.events.WithLabelValues("dropped").Inc()
		return false
	}
	if strings.HasPrefix(tag, "salt/") &&
		anyGlob(reserved, tag) ||
		!event.ValidTag(tag) || !m.ownEvent(c, tag, data) {
		m.metrics.events.WithLabelValues("blocked").Inc()
		m.refused.note("event_tag", c.ID, c.remote)
		return false
	}
	return true
}

// ownEvent reports whether an event names only its sender, or a minion for which the sender may
// speak. Tags that name a minion are salt/minion/<id>/..., salt/beacon/<id>/...,
// salt/state_result/<jid>/<id>/... and salt/job/<jid>/<ret, prog, ...>/<id>. Reactors and clients
// that wait for a job also use the data.
func (m *Master) ownEvent(c *call, tag string, data value.Map) bool {
	parts := strings.SplitN(tag, "/", 6)
	switch {
	case parts[0] == "syndic" && len(parts) > 1:
		if !m.isSyndic(c.ID) || len(parts) < 3 || parts[1] != c.ID {
			return false
		}
	case parts[0] != "salt" || len(parts) < 3:
		return true
	case parts[1] == "minion" || parts[1] == "beacon":
		if !m.speaksFor(c, parts[2]) {
			return false
		}
	case parts[1] == "state_result":
		if len(parts) > 3 && !m.speaksFor(c, parts[3]) {
			return false
		}
	case parts[1] == "job":
		if _, id, found := strings.Cut(tag, "/ret/"); found && !m.speaksFor(c, id) {
			return false
		}
		if len(parts) > 4 && !m.speaksFor(c, parts[4]) {
			return false
		}
		if has(data, "minions") && !m.isSyndic(c.ID) {
			return false
		}
	default:
		return true
	}
	id, named := data.Get("id")
	text, isText := id.(string)
	return !named || isText && m.speaksFor(c, text)
}

// tagify joins tag parts and skips empty ones.
func tagify(parts ...string) string {
	var out []string
	for _, part := range parts {
		for _, p := range strings.Split(part, "/") {
			if p != "" {
				out = append(out, p)
			}
		}
	}
	return strings.Join(out, "/")
}
