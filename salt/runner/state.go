package runner

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/salt/function"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
	"clustermaster/value/pyregex"
)

// Event is one event of the bus.
type Event struct {
	Tag  string
	Data any // value.Map, or wire.Raw of one
}

// Watcher opens a stream of the events of the whole cluster.
type Watcher interface {
	// Watch returns once the other masters have confirmed the subscription, or gave up; unconfirmed
	// names the latter. The channel closes when ctx ends. Events that a slow reader misses are
	// skipped.
	Watch(ctx context.Context, prefix string) (events <-chan Event, unconfirmed []string, err error)
}

// State is the part of the family state that does not render states.
func State(watch Watcher) []Function {
	return []Function{{
		Name: "state.event",
		Params: []function.Param{function.Opt("tagmatch", "*"), function.Opt("count", int64(-1)),
			function.Opt("quiet", false), function.Opt("sock_dir", nil),
			function.Opt("pretty", false),
			function.Opt("node", "master")},
		Doc: `Print the events of the whole cluster as they arrive: tag, a tab, the data as JSON.

tagmatch
    A glob or a regular expression; only events with such a tag.

count : -1
    Stop after so many matching events; -1 means never.

quiet : False
    Print nothing, only wait.

pretty : False
    Print indented JSON with sorted keys.

Example:

    salt-run state.event pretty=True
    salt-run state.event 'salt/minion/*/start' count=1 quiet=True`,
		Run: func(ctx context.Context, c *Call) (any, error) { return watchEvents(ctx, c, watch) },
	}}
}

func watchEvents(ctx context.Context, c *Call, watch Watcher) (any, error) {
	n, err := c.Number("count")
	if err != nil {
		return nil, err
	}
	count, match := int64(n), tagMatcher(c.Text("tagmatch"))
	style := value.JSONStyle{Indent: -1, Base64: true}
	if c.True("pretty") {
		style.Indent, style.SortKeys = 4, true
	}
	events, unconfirmed, err := watch.Watch(ctx, globPrefix(c.Text("tagmatch")))
	if err != nil {
		return nil, fmt.Errorf("watch events: %w", err)
	}
	for _, node := range unconfirmed {
		c.Warn("events of master " + node + " are missing: it did not answer in time")
	}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case e, ok := <-events:
			if !ok {
				return nil, errors.New("watch events: the stream ended; run the command again")
			}
			if !match(e.Tag) {
				continue
			}
			if !c.True("quiet") {
				c.Print(eventLine(e, style))
			}
			if count > 0 {
				count--
			}
			if count == 0 {
				return nil, nil
			}
		}
	}
}

// eventLine formats an event for scripts, which split it at the tab.
func eventLine(e Event, style value.JSONStyle) string {
	text, err := value.JSON(e.Data, style)
	if err != nil { // keys of several types can't be sorted; the data is worth more than the order
		style.SortKeys = false
		if text, err = value.JSON(e.Data, style); err != nil {
			text = value.Repr(e.Data)
		}
	}
	return e.Tag + "\t" + text
}

// tagMatcher matches a tag by a glob or a regular expression, as Salt's expr_match.
func tagMatcher(expr string) func(tag string) bool {
	test, ok := pyregex.ListEach(expr)
	return func(tag string) bool { return fnmatch.Match(expr, tag) || ok && test(tag) }
}

// globPrefix is the text that every tag matching a plain glob begins with, so that the other
// masters need not send other events. It is "" if the expression could be a regular one.
func globPrefix(expr string) string {
	for i := 0; i < len(expr); i++ {
		switch expr[i] {
		case '*', '?', '[':
			if i+1 == len(expr) && expr[i] == '*' || i > 0 && expr[i-1] == '/' {
				return expr[:i]
			}
			return ""
		case '.', '+', '(', ')', '|', '{', '}', '^', '$', '\\':
			return ""
		}
	}
	return expr
}

// Events is the family event. fire sends an event to the bus of the cluster.
func Events(fire func(tag string, data value.Map)) []Function {
	return []Function{{
		Name: "event.send", Params: []function.Param{function.Need("tag"),
			function.Opt("data", nil)},
		Doc: `Fire an event.

tag
    The whole tag; no prefix is added.

data
    A map.

Example:

    salt-run event.send my/custom/event '{"foo": "bar"}'`,
		Run: func(_ context.Context, c *Call) (any, error) {
			data := value.Map{}
			if c.True("data") {
				m, ok := value.Plain(c.Arg("data")).(value.Map)
				if !ok {
					return nil, fmt.Errorf("Dict object expected, not '%s'.",
						value.Str(c.Arg("data"))) // Salt's text
				}
				data = m
			}
			fire(c.Text("tag"), append(value.Map(nil), data...))
			return true, nil
		},
	}}
}
