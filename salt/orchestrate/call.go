package orchestrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// call runs the function of a chunk, repeatedly if it has retries. An error ends the whole run.
func (x *run) call(ctx context.Context, ch *chunk) (value.Map, error) {
	try := ch.try
	ret, err := x.once(ctx, ch)
	again, retry := ch.get("retry")
	_, beside := ch.get("parallel")
	_, started := ret.Get("start_time")
	if err != nil || try || !started || !retry || beside {
		return unify(ret, err)
	}
	r := retryOf(again)
	if x.test {
		return unify(ret.Set("comment", r.told(ret)), nil)
	}
	var said []string
	start, _ := ret.Get("start_time")
	took := 0.0
	for attempt := 1; !r.done(ret) && attempt < r.attempts; attempt++ {
		said = append(said, attemptText(attempt, ret))
		pause := r.pause()
		took += number(ret, "duration") + milliseconds(pause)
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
		if ret, err = x.once(ctx, ch); err != nil {
			return nil, err
		}
	}
	if ret, err = unify(ret, nil); len(said) > 0 {
		last, _ := ret.Get("comment")
		text := ""
		if value.Truth(last) {
			text = value.Str(last)
		}
		ret = ret.Set("comment", strings.Join(append(said, text), "\n")).Set("duration",
			took+number(ret, "duration")).Set("start_time", start)
	}
	return ret, err
}

func number(m value.Map, key string) float64 {
	v, _ := m.Get(key)
	f, _ := v.(float64)
	return f
}

func attemptText(attempt int, ret value.Map) string {
	result, _ := ret.Get("result")
	comment, _ := ret.Get("comment")
	return fmt.Sprintf(`Attempt %d: Returned a result of "%s", with the following comment: "%s"`,
		attempt, value.Str(result), value.Str(comment))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// retry says how often to run a state until it has the wanted result.
type retry struct {
	until                     bool
	attempts, interval, splay int
}

// maxAttempts bounds retries, because the comment has a line for each.
const maxAttempts = 10_000

func retryOf(v any) retry {
	r := retry{until: true, attempts: 2, interval: 30}
	switch v := v.(type) {
	case bool:
		if !v {
			r.attempts = 0
		}
	case value.Map:
		if b, ok := orElse(v, "until", true).(bool); ok {
			r.until = b
		}
		for key, to := range map[string]*int{"attempts": &r.attempts, "interval": &r.interval,
			"splay": &r.splay} {
			if n, ok := integer(orElse(v, key, nil)); ok {
				*to = int(min(max(n, 0), 1<<31))
			}
		}
	}
	r.attempts = min(r.attempts, maxAttempts)
	return r
}

func (r retry) done(ret value.Map) bool {
	result, _ := ret.Get("result")
	return result == r.until
}

func (r retry) pause() time.Duration {
	s := r.interval
	if r.splay > 0 {
		s += rand.IntN(r.splay + 1)
	}
	return time.Duration(s) * time.Second
}

// told is the comment of a test run.
func (r retry) told(ret value.Map) string {
	comment, _ := ret.Get("comment")
	text := ""
	if value.Truth(comment) {
		text = value.Str(comment)
	}
	return text + "  " +
		fmt.Sprintf("The state would be retried every %d seconds (with a splay of up to %d seconds) a maximum of %d times or until a result of %s is returned",
			r.interval, r.splay, r.attempts, value.Repr(r.until))
}

// once runs the function of a chunk once: Salt's State.call. The return is unchanged from the
// function.
func (x *run) once(ctx context.Context, ch *chunk) (value.Map, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	began := x.o.deps.Now()
	fun, umask, wrong := x.verify(ch)
	if len(wrong) > 0 {
		ret := value.Map{
			{Key: "result", Value: false}, {Key: "name", Value: ch.name},
			{Key: "changes", Value: value.Map{}},
			{Key: "comment", Value: strings.Join(wrong, "\n") + "\n"},
			{Key: "__run_num__", Value: x.number},
		}
		x.number++
		return ret, nil
	}
	args, err := argumentsOf(ch, fun)
	if err != nil {
		return nil, err
	}
	ret := x.judged(ctx, ch, fun, args, umask)
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	try := ch.try
	if ch.try = false; try || ret == nil {
		return ret, nil
	}
	ret = ret.Set("__sls__", ch.sls).Set("__run_num__", x.number)
	x.number++
	if hide, _ := ch.get("no_log"); value.Truth(hide) {
		for _, key := range []string{"name", "comment", "changes"} {
			v, _ := ret.Get(key)
			ret = ret.Set(key, masked(v))
		}
	}
	x.refresh(ctx, ch, ret)
	ret = ret.Set("start_time", clock(began)).Set("duration",
		milliseconds(x.o.deps.Now().Sub(began))).Set("__id__", ch.id)
	x.o.log.Debug("state ran", "jid", x.req.JID, "fun", ch.module+"."+ch.fun, "id", ch.id, "took",
		x.o.deps.Now().Sub(began))
	return ret, nil
}

// verify returns the errors of a chunk: Salt's verify_data. umask is -1 for none.
func (x *run) verify(ch *chunk) (fun Function, umask int, wrong []string) {
	umask = -1
	if _, text := ch.name.(string); !text && value.Truth(ch.name) {
		in := ""
		if ch.sls != nil {
			in = "in SLS '" + show(ch.sls) + "' "
		}
		wrong = append(wrong, fmt.Sprintf("ID '%s' %sis not formed as a string, but is a %s",
			show(ch.name), in, typeName(ch.name)))
	}
	if v, ok := ch.get("umask"); ok {
		n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(value.Str(v)),
			"0o"), 8, 12)
		if err != nil {
			wrong = append(wrong, "Invalid umask: "+show(v))
		}
		umask = int(n)
	}
	if len(wrong) > 0 {
		return fun, umask, wrong
	}
	full := ch.module + "." + ch.fun
	fun, ok := x.functions.Lookup(full)
	if !ok {
		why := x.functions.Why(full)
		if ch.sls == nil {
			wrong = []string{fmt.Sprintf("Specified state '%s' was not found", full)}
			if why != "" {
				wrong = append(wrong, "Reason: "+why)
			}
			return fun, umask, wrong
		}
		return fun, umask, []string{fmt.Sprintf("State '%s' was not found in SLS '%s'", full,
			show(ch.sls)), "Reason: " + cmp.Or(why, fmt.Sprintf("'%s' is not available.", full))}
	}
	wrong = append(wrong, fun.signature(full).MissingState(ch.low)...)
	return fun, umask, wrong
}

// argumentsOf gives the parameters of a function their values. An unknown keyword is an error that
// ends the run.
func argumentsOf(ch *chunk, fun Function) (value.Map, error) {
	return fun.signature(ch.module+"."+ch.fun).BindState(ch.low,
		func(key string) bool { return internal[key] || key == "name_order" })
}

func (f Function) signature(name string) function.Signature {
	return function.Signature{Name: name, Params: f.Params, VarKwargs: f.VarKwargs}
}

// judged runs a function unless a condition says that it need not run, and lets check_cmd judge the
// result.
func (x *run) judged(ctx context.Context, ch *chunk, fun Function, args value.Map,
	umask int) value.Map {
	ret, err := x.conditional(ctx, ch, fun, args, umask)
	if _, ok := ch.get("check_cmd"); ok && err == nil {
		_, own := x.functions.Lookup(ch.module + ".mod_run_check_cmd")
		if !own || !fun.signature(ch.fun).Has("check_cmd") {
			var more value.Map
			more, err = x.checkCommand(ctx, ch)
			ret = overlay(ret, more)
		}
	}
	if err != nil {
		return exception(ch, err)
	}
	return ret
}

func (x *run) conditional(ctx context.Context, ch *chunk, fun Function, args value.Map,
	umask int) (value.Map, error) {
	conditions := slices.ContainsFunc([]string{"unless", "onlyif", "creates"},
		func(key string) bool { _, ok := ch.get(key); return ok })
	if conditions {
		_, own := x.functions.Lookup(ch.module + ".mod_run_check")
		conditions = !own
	}
	if conditions {
		more, err := x.conditions(ctx, ch)
		if err != nil {
			return nil, err
		}
		if result, _ := more.Get("result"); result == true {
			return overlay(value.Map{{Key: "result", Value: false}, {Key: "name", Value: ch.name},
				{Key: "changes", Value: value.Map{}}}, more), nil
		}
	}
	if ret, err := x.globalConditions(ctx, ch); ret != nil || err != nil {
		return ret, err
	}
	c := x.callOf(ch, fun, umask)
	if beside, _ := ch.get("parallel"); value.Truth(beside) && !ch.try {
		c.Beside = true
		return x.startParallel(ctx, ch, func(ctx context.Context) value.Map {
			return x.beside(ctx,
				ch, fun, c, args)
		}), nil
	}
	return x.invoke(ctx, fun, c, args)
}

func (x *run) callOf(ch *chunk, fun Function, umask int) Call {
	env := "base"
	for _, key := range []string{"__env__", "saltenv"} {
		if v, ok := ch.get(key); ok {
			env = show(v)
		}
	}
	name, _ := ch.name.(string)
	sls, _ := ch.sls.(string)
	who := x.who
	who.Saltenv = env
	c := Call{
		State: ch.module, Fun: ch.fun, SFun: ch.low.String("sfun"), ID: ch.id, SLS: sls, Name: name,
		Env: env, Umask: umask, Test: x.test || ch.try,
		JID: x.req.JID, User: x.req.User, Master: who, Watched: ch.watched, Low: ch.low,
	}
	if len(ch.reqs) > 0 {
		c.Low = append(slices.Clone(ch.low), value.Pair{Key: "__reqs__", Value: ch.reqs})
	}
	if fun.Wants.Running {
		c.Running = x.ret.wire()
		for i, p := range c.Running { // the run changes its own while a parallel state reads these
			c.Running[i].Value = slices.Clone(p.Value.(value.Map))
		}
	}
	if fun.Wants.Lowstate {
		for _, other := range x.lowstate {
			c.Lowstate = append(c.Lowstate, other.low)
		}
	}
	return c
}

// invoke calls the function after filling the slots among its arguments.
func (x *run) invoke(ctx context.Context, fun Function, c Call, args value.Map) (ret value.Map,
	err error) {
	defer func() {
		if p := recover(); p != nil {
			x.o.log.Error("state function panicked; please report this", "fun", c.State+"."+c.Fun, "id", c.ID, "err",
				fmt.Sprint(p), "stack", string(debug.Stack()))
			ret, err = nil, fmt.Errorf("function %s.%s crashed: %v; the master's log has the details",
				c.State, c.Fun, p)
		}
	}()
	if c.Args, err = x.slots(ctx, c.Master, args); err != nil {
		return nil, err
	}
	if v, ok := c.Args.Get("name"); ok {
		c.Name = value.Str(v)
	}
	return fun.Run(ctx, c)
}

// beside runs a parallel state, with its retries.
func (x *run) beside(ctx context.Context, ch *chunk, fun Function, c Call,
	args value.Map) value.Map {
	one := func() value.Map {
		began := x.o.deps.Now()
		ret, err := x.invoke(ctx, fun, c, args)
		if err != nil {
			ret = exception(ch, err)
		}
		ret, _ = unify(ret, nil)
		return ret.Set("start_time", clock(began)).Set("duration",
			milliseconds(x.o.deps.Now().Sub(began))).Set("__parallel__", true)
	}
	ret := one()
	again, ok := ch.get("retry")
	if !ok {
		return ret
	}
	r := retryOf(again)
	if x.test {
		return ret.Set("comment", r.told(ret))
	}
	start, _ := ret.Get("start_time")
	for attempt := 1; attempt <= r.attempts && !r.done(ret); attempt++ {
		pause := r.pause()
		if sleep(ctx, pause) != nil {
			break
		}
		before := ret
		ret = one().Without("__parallel__")
		said := ""
		if comment, _ := ret.Get("comment"); value.Truth(comment) {
			said = attemptText(attempt, ret)
		}
		had, _ := before.Get("comment")
		ret = ret.Set("comment", value.Str(had)+"\n"+said).Set("duration",
			number(ret, "duration")+number(before, "duration")+
				milliseconds(pause)).Set("start_time", start)
	}
	return ret
}

// exception is the return of a function that failed.
func exception(ch *chunk, err error) value.Map {
	return value.Map{
		{Key: "result", Value: false}, {Key: "name", Value: ch.name},
		{Key: "changes", Value: value.Map{}},
		{Key: "comment", Value: "An exception occurred in this state: " + err.Error() + "\n"},
	}
}

// overlay merges a map into another, in place.
func overlay(ret, more value.Map) value.Map {
	for _, p := range more {
		ret = ret.Set(value.Str(p.Key), p.Value)
	}
	return ret
}

// unify checks a return, unless there is an error, and turns its comment into one text: Salt's
// OutputUnifier.
func unify(ret value.Map, err error) (value.Map, error) {
	if err != nil {
		return nil, err
	}
	if err := malformed(ret); err != nil {
		return value.Map{
			{Key: "result", Value: false}, {Key: "name", Value: "later"},
			{Key: "changes", Value: value.Map{}},
			{Key: "comment", Value: "An exception occurred in this state: " + err.Error()},
		}, nil
	}
	comment, _ := ret.Get("comment")
	if list, ok := comment.([]any); ok {
		texts := make([]string, len(list))
		for i, e := range list {
			texts[i] = value.Str(e)
		}
		ret = ret.Set("comment", strings.Join(texts, "\n"))
	}
	if result, _ := ret.Get("result"); result != nil {
		ret = ret.Set("result", value.Truth(result))
	}
	return ret, nil
}

func malformed(ret value.Map) error {
	if ret == nil {
		return errors.New("Malformed state return. Data must be a dictionary type.") // Salt's text
	}
	changes, _ := ret.Get("changes")
	if _, ok := changes.(value.Map); !ok {
		return errors.New("'Changes' should be a dictionary.") // Salt's text
	}
	var missing []string
	for _, key := range []string{"name", "result", "changes", "comment"} {
		if _, ok := ret.Get(key); !ok {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("The following keys were not present in the state return: %s.",
			strings.Join(missing, ", ")) // Salt's text
	}
	return nil
}

// masked hides the contents of a value, but not its shape; empty and false values stay.
func masked(v any) any {
	switch v := v.(type) {
	case value.Map:
		out := make(value.Map, len(v))
		for i, p := range v {
			out[i] = value.Pair{Key: p.Key, Value: masked(p.Value)}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = masked(e)
		}
		return out
	}
	if !value.Truth(v) {
		return v
	}
	return "**********"
}

// refresh makes grains and pillar anew for later states, if a state requests it, and has modules
// loaded again that it may have changed: Salt's check_refresh.
func (x *run) refresh(ctx context.Context, ch *chunk, ret value.Map) {
	asked := func(key string) bool {
		v, _ := ch.get(key)
		return value.Truth(v)
	}
	changes, _ := ret.Get("changes")
	switch {
	case asked("reload_grains"), asked("reload_pillar"):
		defer func() { x.functions.Reload(x.who, asked("reload_grains")) }()
	case !value.Truth(changes) && asked("force_reload_modules"),
		value.Truth(changes) && (asked("reload_modules") || bringsModules(ch)):
		x.functions.Reload(x.who, false)
	}
	if asked("reload_grains") && x.o.deps.Grains != nil {
		x.who.Grains = x.o.deps.Grains()
	}
	if asked("reload_pillar") {
		made, err := x.o.pillar(ctx, x.req, x.who.Grains)
		if err != nil {
			x.o.log.Warn("pillar not compiled again; states continue with the old one", "jid", x.req.JID,
				"id", ch.id, slog.Any("err", err))
			return
		}
		x.who.Pillar = made
	}
}

// bringsModules reports whether a state that made changes may have installed modules.
func bringsModules(ch *chunk) bool {
	switch ch.module + "." + ch.fun {
	case "file.managed":
		return slices.Contains([]string{".py", ".pyx", ".pyo", ".pyc", ".so"},
			filepath.Ext(value.Str(ch.name)))
	case "file.recurse":
		return true
	case "file.symlink":
		return strings.Contains(value.Str(ch.name), "bin")
	}
	return ch.module == "pkg" || ch.module == "ports" || ch.module == "pip"
}
