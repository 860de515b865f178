package statemodules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/salt/orchestrate"
	"clustermaster/value"
	"clustermaster/value/pyregex"
)

// httpStates is the module http (salt/states/http.py).
func httpStates(d Deps) orchestrate.Table {
	h := querier{d.Modules}
	return orchestrate.Table{
		"http.query": {Params: []function.Param{
			need("name"), opt("match", nil), opt("match_type", "string"), opt("status", nil),
			opt("status_type", "string"), opt("wait_for", nil),
		}, VarKwargs: true, Run: h.query},
		"http.wait_for_successful_query": {Params: []function.Param{need("name"),
			opt("wait_for", int64(300))}, VarKwargs: true, Run: h.wait},
	}
}

type querier struct{ modules Modules }

// pause is the shortest time between two queries that wait for success.
const pause = 100 * time.Millisecond

// ofState are the parameters of the state; other keywords are http.query's.
var ofState = []string{"name", "match", "match_type", "status", "status_type", "wait_for", "test",
	"test_url", "request_interval"}

func (h querier) query(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	ret := value.Map{{Key: "name", Value: c.Name}, {Key: "result", Value: nil},
		{Key: "comment", Value: ""}, {Key: "changes", Value: value.Map{}},
		{Key: "data", Value: value.Map{}}}
	match, status := c.Arg("match"), c.Arg("status")
	if match == nil && status == nil {
		return ended(ret, false,
			" Either match text (match) or a status code (status) is required."), nil
	}
	data, err := h.fetch(ctx, c)
	if err != nil {
		return nil, err
	}
	v := verdict{}
	if match != nil {
		if err := v.match(match, value.Str(c.Arg("match_type")), data.String("text")); err != nil {
			return nil, err
		}
	}
	if status != nil {
		got, there := data.Get("status")
		if !there {
			got = ""
		}
		if err := v.status(status, value.Str(c.Arg("status_type")), value.Str(got)); err != nil {
			return nil, err
		}
	}
	comment := strings.TrimSpace(strings.Join(v.said, ""))
	if c.Test {
		v.result = nil
		comment += " (TEST MODE"
		if u, ok := c.Args.Get("test_url"); ok {
			comment += ", TEST URL WAS: " + value.Str(u)
		}
		comment += ")"
	}
	return ended(ret, v.result, comment).Set("data", data), nil
}

// fetch returns the result of http.query. In test mode it queries test_url only; without one it
// queries nothing and returns an empty map.
func (h querier) fetch(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	url := any(c.Name)
	if c.Test {
		var ok bool
		if url, ok = c.Args.Get("test_url"); !ok {
			return value.Map{}, nil
		}
	}
	kwargs := value.Map{{Key: "text", Value: true}, {Key: "status", Value: true}}
	for _, p := range c.Args {
		if name, _ := p.Key.(string); !slices.Contains(ofState, name) {
			kwargs = kwargs.Set(name, p.Value)
		}
	}
	once := func() (value.Map, error) {
		v, err := h.modules.Call(ctx, c.Master, "http.query", []any{url}, kwargs)
		data, _ := v.(value.Map)
		if c.Test && data != nil {
			data = append(value.Map{{Key: "test", Value: true}}, data...)
		}
		return data, err
	}
	if !value.Truth(c.Arg("wait_for")) {
		return once()
	}
	return repeat(ctx, c, func() (value.Map, bool, error) {
		data, err := once()
		wrong, _ := data.Get("error")
		return data, err == nil && !value.Truth(wrong), err
	})
}

// wait repeats query until it succeeds or wait_for has passed.
func (h querier) wait(ctx context.Context, c orchestrate.Call) (value.Map, error) {
	one := c
	one.Args = c.Args.Without("wait_for")
	// wait_for_successful_query doesn't declare these two
	for _, p := range []function.Param{opt("match_type", "string"), opt("status_type", "string")} {
		if _, given := one.Args.Get(p.Name); !given {
			one.Args = one.Args.Set(p.Name, p.Default)
		}
	}
	return repeat(ctx, c, func() (value.Map, bool, error) {
		ret, err := h.query(ctx, one)
		result, _ := ret.Get("result")
		return ret, result == true, err
	})
}

// repeat calls do until it reports success or wait_for has passed, and returns the last result.
func repeat(ctx context.Context, c orchestrate.Call,
	do func() (v value.Map, good bool, err error)) (value.Map, error) {
	limit, ok := seconds(c.Arg("wait_for"))
	if !ok {
		return nil, fmt.Errorf("wait_for must be a number of seconds, not %s",
			value.Repr(c.Arg("wait_for")))
	}
	between, _ := seconds(c.Arg("request_interval"))
	between = max(between, pause)
	end := time.Now().Add(limit)
	for {
		v, good, err := do()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case good, time.Now().After(end):
			return v, err
		}
		timer := time.NewTimer(between)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// verdict collects the result and the comment for one answer.
type verdict struct {
	result any // nil until something was judged
	said   []string
}

func (v *verdict) say(found bool, what, were string) {
	switch {
	case found:
		v.said = append(v.said, " "+what+" "+were+" found.")
		if v.result == nil {
			v.result = true
		}
	default:
		v.said = append(v.said, " "+what+" "+were+" not found.")
		v.result = false
	}
}

func (v *verdict) match(want any, kind, text string) error {
	switch kind {
	case "string":
		v.say(strings.Contains(text, value.Str(want)),
			fmt.Sprintf("Match text \"%s\"", value.Str(want)), "was")
	case "pcre":
		found, err := search(value.Str(want), text)
		if err != nil {
			return err
		}
		v.say(found, fmt.Sprintf("Match pattern \"%s\"", value.Str(want)), "was")
	}
	return nil
}

func (v *verdict) status(want any, kind, got string) error {
	switch kind {
	case "string":
		v.say(got == value.Str(want), "Status "+value.Str(want), "was")
	case "pcre":
		found, err := search(value.Str(want), got)
		if err != nil {
			return err
		}
		v.say(found, fmt.Sprintf("Status pattern \"%s\"", value.Str(want)), "was")
	case "list":
		list, _ := want.([]any)
		for _, one := range list {
			if got == value.Str(one) {
				v.say(true, "Status "+value.Str(one), "was")
			}
		}
		if v.result != true {
			v.say(false, "Statuses "+value.Str(want), "were")
		}
	}
	return nil
}

// search is Python's re.search.
func search(pattern, text string) (bool, error) {
	test, ok := pyregex.Search(pattern)
	if !ok {
		return false, fmt.Errorf("pattern %q is not a regular expression", pattern)
	}
	return test(text), nil
}
