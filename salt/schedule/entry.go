package schedule

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/value"
	"clustermaster/value/dateutil"
)

// Entry is one entry of the option schedule.
type Entry struct {
	Name     string
	Function string
	Args     []any
	Kwargs   value.Map
	Metadata value.Map // nil for none

	Returners                []string // that receive the result
	ReturnConfig, ReturnArgs any      // return_config, return_kwargs; nil for none

	Enabled    bool
	ReturnJob  bool
	NoCache    bool // return_job: nocache
	JIDInclude bool // counts for maxrunning
	MaxRunning int
	RunOnStart bool
	DryRun     bool
	RunAfter   bool // run_after_skip_range

	hash     [sha256.Size]byte
	interval time.Duration // of seconds, minutes, hours and days; 0 for none
	once     time.Time     // on a clock without a zone; zero for none
	whens    []dateutil.When
	cron     *cron
	splay    *splay
	within   *span // range
	invert   bool  // of range
	skip     *span // skip_during_range
	until    *dateutil.When
	after    *dateutil.When
	instead  string // skip_function: what runs where a range says no; "" for nothing
}

// splay is the range of a run's random delay, in seconds.
type splay struct{ from, to int64 }

// span is the time between two times of day.
type span struct{ start, end dateutil.When }

// Problem is the error of an entry that does not run, or not as written.
type Problem struct {
	Name, Text string
	Runs       bool // it runs anyway
}

// globals are the keys of the option that are not entries.
type globals struct {
	enabled     bool
	splay, skip any
	skipFun     string
}

// Read reads the option schedule. It leaves out wrong entries, and returns a problem for each.
func Read(option value.Map) (entries []*Entry, problems []Problem) {
	g := globals{enabled: true}
	for _, p := range option {
		switch p.Key {
		case "enabled":
			g.enabled = value.Truth(p.Value)
		case "splay":
			g.splay = p.Value
		case "skip_during_range":
			g.skip = p.Value
		case "skip_function":
			g.skipFun = value.Str(p.Value)
		}
	}
	for _, p := range option {
		switch p.Key {
		case "enabled", "splay", "skip_during_range", "skip_function":
			continue
		}
		name := value.Str(p.Key)
		m, ok := p.Value.(value.Map)
		if !ok {
			problems = append(problems, Problem{Name: name, Text: "it is " + value.Repr(p.Value) +
				"; write a map with function and a time"})
			continue
		}
		e, notes, err := g.entry(name, m)
		for _, n := range notes {
			problems = append(problems, Problem{Name: name, Text: n, Runs: err == nil})
		}
		if err != nil {
			problems = append(problems, Problem{Name: name, Text: err.Error()})
			continue
		}
		entries = append(entries, e)
	}
	return entries, problems
}

// elements are the keys that make an interval, with their seconds.
var elements = []struct {
	name    string
	seconds int64
}{{"seconds", 1}, {"minutes", 60}, {"hours", 3600}, {"days", 86400}}

// maxInterval bounds an interval: ten years.
const maxInterval = 10 * 366 * 24 * time.Hour

func (g globals) entry(name string, m value.Map) (e *Entry, notes []string, err error) {
	e = &Entry{Name: name, Enabled: g.enabled, ReturnJob: true, JIDInclude: true, MaxRunning: 1,
		instead: g.skipFun}
	if text := m.String("name"); text != "" {
		e.Name = text
	}
	packed, err := value.Pack(value.Map{{Key: "entry", Value: m}, {Key: "splay", Value: g.splay}})
	if err != nil {
		return nil, nil, fmt.Errorf("it can't be stored: %w", err)
	}
	e.hash = sha256.Sum256(packed)
	for _, key := range []string{"function", "func", "fun"} {
		if v, ok := m.Get(key); ok {
			e.Function = value.Str(v)
			break
		}
	}
	if e.Function == "" {
		return nil, nil,
			errors.New("it has no function; write function: and the name of a runner function, such as state.orchestrate")
	}
	notes = e.flags(m)
	if err := e.arguments(m); err != nil {
		return nil, notes, err
	}
	for _, el := range elements {
		_, interval := m.Get(el.name)
		for _, key := range []string{"when", "cron", "once"} {
			if _, both := m.Get(key); interval && both {
				notes = append(notes, key+" counts for nothing beside "+el.name+
					"; keep one of them")
			}
		}
	}
	return e, notes, errors.Join(e.times(m), e.spans(m, g))
}

// Returners lists the returners that an entry's returner or the option schedule_returner names,
// each once.
func Returners(v any) (names []string) {
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	for _, one := range list {
		if name, ok := one.(string); ok && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// flags reads the keys that are switches.
func (e *Entry) flags(m value.Map) (notes []string) {
	truth := func(key string, to *bool) bool {
		v, ok := m.Get(key)
		if ok {
			*to = value.Truth(v)
		}
		return ok
	}
	own := true
	truth("enabled", &own)
	e.Enabled = e.Enabled && own
	truth("return_job", &e.ReturnJob)
	truth("jid_include", &e.JIDInclude)
	truth("dry_run", &e.DryRun)
	truth("run_after_skip_range", &e.RunAfter)
	if v, _ := m.Get("return_job"); v == "nocache" {
		e.NoCache = true
	}
	if v, ok := m.Get("maxrunning"); ok {
		n, err := integer(v)
		if err != nil || n < 1 {
			notes = append(notes, "maxrunning is "+value.Repr(v)+
				"; write a number from 1 on, it is 1 until then")
			n = 1
		}
		e.MaxRunning = int(min(n, maxRuns))
	}
	if v, ok := m.Get("metadata"); ok {
		if e.Metadata, ok = v.(value.Map); !ok {
			notes = append(notes,
				"The metadata parameter must be specified as a dictionary.  Ignoring.")
		}
	}
	returner, _ := m.Get("returner")
	e.Returners = Returners(returner)
	e.ReturnConfig, _ = m.Get("return_config")
	e.ReturnArgs, _ = m.Get("return_kwargs")
	for _, key := range []string{"run_explicit", "skip_explicit"} {
		if _, ok := m.Get(key); ok {
			notes = append(notes, key+" is not used on this master; remove it")
		}
	}
	return notes
}

// arguments reads the arguments of the function.
func (e *Entry) arguments(m value.Map) error {
	if v, _ := m.Get("args"); v != nil {
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("args is %s; write a list", value.Repr(v))
		}
		e.Args = list
	}
	if v, _ := m.Get("kwargs"); v != nil {
		kwargs, ok := v.(value.Map)
		if !ok {
			return fmt.Errorf("kwargs is %s; write a map", value.Repr(v))
		}
		e.Kwargs = kwargs
	}
	return nil
}

// times reads when the entry is due: it has one of interval, once, when and cron.
func (e *Entry) times(m value.Map) error {
	var kinds []string
	var seconds int64
	for _, el := range elements {
		v, ok := m.Get(el.name)
		if !ok {
			continue
		}
		n, err := integer(v)
		if err != nil {
			return fmt.Errorf("%s is %s; write a number", el.name, value.Repr(v))
		}
		if n < 0 || n > int64(maxInterval/time.Second)/el.seconds {
			return fmt.Errorf("%s is %d; write a number from 0 to ten years", el.name, n)
		}
		seconds += n * el.seconds
		if len(kinds) == 0 {
			kinds = append(kinds, "seconds, minutes, hours or days")
		}
	}
	interval := len(kinds) > 0
	for _, key := range []string{"when", "cron", "once"} {
		if _, ok := m.Get(key); ok {
			kinds = append(kinds, key)
		}
	}
	switch {
	case len(kinds) == 0:
		return errors.New("it has no time; write seconds, minutes, hours, days, cron, when or once")
	case interval:
		// Salt reports that they can't be combined, and runs the interval.
	case len(kinds) > 1:
		return fmt.Errorf(`Unable to use "%s" options together. Ignoring; keep one of them`,
			strings.Join(kinds, `", "`)) // Salt's text
	}
	e.RunOnStart = interval
	if v, ok := m.Get("run_on_start"); ok {
		e.RunOnStart = value.Truth(v)
	}
	if interval {
		if seconds == 0 {
			return errors.New("its interval is 0; write a number from 1 on")
		}
		e.interval = time.Duration(seconds) * time.Second
		return nil
	}
	return e.moments(m)
}

// moments reads cron, once and when.
func (e *Entry) moments(m value.Map) (err error) {
	if v, ok := m.Get("cron"); ok {
		c, err := parseCron(value.Str(v))
		if err != nil {
			return fmt.Errorf("Invalid cron string. Ignoring job %s; %s: %w", e.Name, value.Repr(v),
				err) // Salt's text
		}
		e.cron = &c
	}
	if v, ok := m.Get("once"); ok {
		form := "%Y-%m-%dT%H:%M:%S"
		if f := m.String("once_fmt"); f != "" {
			form = f
		}
		if e.once, err = strptime(value.Str(v), form); err != nil {
			return fmt.Errorf("Date string could not be parsed: %s, %s. Ignoring job %s; %w",
				value.Str(v), form, e.Name, err) // Salt's text
		}
	}
	if v, ok := m.Get("when"); ok {
		list, many := v.([]any)
		if !many {
			list = []any{v}
		}
		for _, v := range list {
			w, err := e.moment("when", v)
			if err != nil {
				return err
			}
			e.whens = append(e.whens, *w)
		}
	}
	return nil
}

func (e *Entry) moment(key string, v any) (*dateutil.When, error) {
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("Invalid date string %s for %s. Ignoring job %s; write it in quotes",
			value.Str(v), key, e.Name) // Salt's text
	}
	w, err := dateutil.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("Invalid date string %s for %s. Ignoring job %s: %w; write a time such "+
			"as 5:00pm, Monday 5:00pm, or 2026-12-24T18:00:00", text, key, e.Name, err) // Salt's text
	}
	return &w, nil
}

// spans reads the keys that delay or prevent runs: splay, range, skip_during_range, until, after.
func (e *Entry) spans(m value.Map, g globals) (err error) {
	if v, ok := m.Get("splay"); ok || g.splay != nil {
		if !ok {
			v = g.splay
		}
		if err := e.readSplay(v); err != nil {
			return err
		}
	}
	if v, ok := m.Get("range"); ok {
		if e.within, err = e.span("range", v); err != nil {
			return err
		}
		inverted, _ := v.(value.Map).Get("invert")
		e.invert = value.Truth(inverted)
	}
	skip, ok := m.Get("skip_during_range")
	if !ok {
		skip = g.skip
	}
	if value.Truth(skip) {
		if e.skip, err = e.span("skip_during_range", skip); err != nil {
			return err
		}
	}
	if v, ok := m.Get("until"); ok {
		if e.until, err = e.moment("until", v); err != nil {
			return err
		}
	}
	if v, ok := m.Get("after"); ok {
		e.after, err = e.moment("after", v)
	}
	return err
}

func (e *Entry) readSplay(v any) error {
	if !value.Truth(v) {
		return nil
	}
	if m, ok := v.(value.Map); ok {
		from, _ := m.Get("start")
		to, _ := m.Get("end")
		a, err1 := integer(from)
		b, err2 := integer(to)
		if err1 != nil || err2 != nil || a < 0 || b < a || b > int64(maxInterval/time.Second) {
			return fmt.Errorf("splay is %s; write start and end in seconds, end no smaller than start", value.Repr(v))
		}
		e.splay = &splay{a, b}
		return nil
	}
	n, err := integer(v)
	if err != nil || n < 1 || n > int64(maxInterval/time.Second) {
		return fmt.Errorf("splay is %s; write seconds from 1 on, or start and end", value.Repr(v))
	}
	e.splay = &splay{1, n}
	return nil
}

func (e *Entry) span(key string, v any) (*span, error) {
	m, ok := v.(value.Map)
	if !ok {
		return nil,
			fmt.Errorf("schedule.handle_func: Invalid, %s must be specified as a dictionary. Ignoring job %s", key, e.Name)
	}
	var s span
	for _, side := range []struct {
		name string
		to   *dateutil.When
	}{{"start", &s.start}, {"end", &s.end}} {
		v, ok := m.Get(side.name)
		if !ok {
			return nil, fmt.Errorf("%s has no %s", key, side.name)
		}
		w, err := e.moment(side.name+" of "+key, v)
		if err != nil {
			return nil, err
		}
		*side.to = *w
	}
	return &s, nil
}

// integer reads an option as Python's int() does.
func integer(v any) (int64, error) {
	switch n := v.(type) {
	case int64:
		return n, nil
	case bool:
		if n {
			return 1, nil
		}
		return 0, nil
	case float64:
		if math.Abs(n) < 1<<53 {
			return int64(n), nil
		}
	case string:
		return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
	}
	return 0, fmt.Errorf("%s is not a number", value.Repr(v))
}
