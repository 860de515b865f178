package output

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"clustermaster/value"
)

// highstateText prints the results of states, one block each, with a summary for each minion.
func highstateText(o Options, r Result) (string, error) { return highstates(o, r.Value, 1) }

// highstates prints all minions of a result. level is the nesting depth of orchestrations, from 1.
func highstates(o Options, v any, level int) (string, error) {
	v = unwrap(v)
	switch x := v.(type) {
	case string:
		return x, nil
	case nil:
		return "None", nil
	case value.Map:
		x = withoutRetcode(x)
		if o.StateCompress {
			x = compressIDs(x)
		}
		hosts := make([]string, 0, len(x))
		for _, p := range x {
			text, _, err := host(o, value.Str(p.Key), p.Value, level)
			if err != nil {
				return "", err
			}
			hosts = append(hosts, text)
		}
		return strings.Join(hosts, "\n"), nil
	}
	return "", errShape
}

// unwrap removes the envelopes of orchestrations and of the job cache.
func unwrap(v any) any {
	for _, key := range []string{"return", "data"} {
		if m, ok := v.(value.Map); ok {
			if inner, ok := m.Get(key); ok {
				v = inner
			}
		}
	}
	m, ok := v.(value.Map)
	if !ok || len(m) != 1 {
		return v
	}
	one, ok := m[0].Value.(value.Map)
	if !ok {
		return v
	}
	_, hasJID := one.Get("jid")
	_, hasFun := one.Get("fun")
	ret, _ := one.Get("return")
	if inner, ok := ret.(value.Map); ok && hasJID && hasFun {
		if data, ok := inner.Get("data"); ok {
			return data
		}
	}
	return v
}

// withoutRetcode drops the retcode that an orchestration returns beside its master's states.
func withoutRetcode(m value.Map) value.Map {
	masters := 0
	for _, p := range m {
		if id, ok := p.Key.(string); ok && strings.HasSuffix(id, "_master") {
			masters++
		}
	}
	if masters != 1 {
		return m
	}
	return m.Without("retcode")
}

// stateLog collects the text of one minion.
type stateLog struct {
	o     Options
	c     colors
	level int
	lines []string
	head  string // colour of the minion's name

	counts    counts
	changed   int
	durations float64 // milliseconds of states that ran one after the other
	parallel  float64 // milliseconds of the longest parallel state
}

// counts of results. other holds results that are neither true, false nor nil.
type counts struct {
	yes, no, none, warnings, other int
	seen                           map[string]bool // which of them occurred at all
}

func (c *counts) add(result any, n int) {
	switch x := result.(type) {
	case bool:
		if x {
			c.yes += n
			c.seen["yes"] = true
		} else {
			c.no += n
			c.seen["no"] = true
		}
	case nil:
		c.none += n
		c.seen["none"] = true
	default:
		c.other += n
		c.seen["other"] = true
	}
}

func (c *counts) total() int { return c.yes + c.no + c.none + c.other }

// digits is the width of the widest count.
func (c *counts) digits() int {
	width := 0
	for name, n := range map[string]int{"yes": c.yes, "no": c.no, "none": c.none,
		"warnings": c.warnings, "other": c.other} {
		if c.seen[name] {
			width = max(width, len(strconv.Itoa(n)))
		}
	}
	return width
}

func (s *stateLog) add(color, text string) { s.lines = append(s.lines, color+text+s.c.end) }

// host prints one minion and reports whether any of its states changed something.
func host(o Options, id string, v any, level int) (text string, changed bool, err error) {
	s := &stateLog{o: o, c: o.colors(), level: level, counts: counts{seen: map[string]bool{}}}
	s.head = s.c.green
	switch x := v.(type) {
	case int64, uint64, bool:
		s.changed = 1
		s.add(s.head, "    "+value.Repr(x))
		s.head = s.c.cyan
	case string:
		s.changed = 1
		for _, line := range splitLines(x) {
			s.add(s.head, "    "+line)
		}
		s.head = s.c.cyan
	case []any:
		s.head = s.c.lightRed
		s.lines = append(s.lines, "    "+s.head+"Data failed to compile:"+s.c.end)
		for _, e := range x {
			text := value.Str(e)
			if _, ok := e.(string); ok {
				text = o.stripEscape(text)
			}
			s.add(s.head, "----------\n    "+text)
		}
	case value.Map:
		if err := s.states(x); err != nil {
			return "", false, err
		}
		s.summary(id)
	}
	lines := append([]string{s.head + o.stripEscape(id) + ":" + s.c.end}, s.lines...)
	return strings.Join(lines, "\n"), s.changed > 0, nil
}

// entry is one state of a minion: the parts of its key and its result.
type entry struct {
	tag   string
	parts []string // module, id, name, function
	ret   value.Map
}

func (s *stateLog) states(m value.Map) error {
	var entries []entry
	for _, p := range m {
		ret, ok := p.Value.(value.Map)
		if !ok {
			continue
		}
		tag := value.Str(p.Key)
		if _, ordered := ret.Get("__run_num__"); !ordered && tag != "changes" && len(ret) > 0 {
			s.lines = append([]string{"The State execution failed to record the order in which all states were executed. The state return missing data is:",
				pformat(ret, 1)}, s.lines...)
		}
		if _, ok := ret.Get("result"); ok {
			entries = append(entries, entry{tag: tag, parts: strings.Split(tag, "_|-"), ret: ret})
		}
	}
	sort.SliceStable(entries,
		func(i, j int) bool { return runNumber(entries[i].ret) < runNumber(entries[j].ret) })
	for _, e := range entries {
		if err := s.state(e); err != nil {
			return err
		}
	}
	return nil
}

func runNumber(ret value.Map) float64 {
	v, _ := ret.Get("__run_num__")
	f, _ := toFloat(v)
	return f
}

func toFloat(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	case string:
		x, _, _ = strings.Cut(x, " ms")
		f, err := strconv.ParseFloat(strings.TrimSpace(x), 64)
		return f, err == nil
	}
	if s, ok := value.Int(v); ok {
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil
	}
	return 0, false
}

// state counts one state and prints it in the chosen mode.
func (s *stateLog) state(e entry) error {
	result, _ := e.ret.Get("result")
	compressed := 1
	if s.o.StateCompress && strings.Contains(e.tag, "_|-state_compressed_") {
		compressed = compressedCount(e.parts)
	}
	s.counts.add(result, compressed)
	s.time(e.ret)

	changes, ok := e.ret.Get("changes")
	if !ok {
		return errShape
	}
	changed, text, err := s.changes(e.ret, changes, compressed)
	if err != nil {
		return err
	}
	fine := value.Truth(result)
	if fine && !changed && (s.o.StateDiff || !s.o.StateVerbose) {
		return nil
	}
	color := s.c.green
	if changed {
		color = s.c.cyan
	}
	if result == false {
		color, s.head = s.c.red, s.c.red
	}
	if result == nil {
		color, s.head = s.c.lightYellow, s.c.lightYellow
	}
	mode := strings.ToLower(s.o.StateOutput)
	if strings.HasSuffix(mode, "_id") && len(e.parts) > 2 {
		e.parts = append([]string(nil), e.parts...)
		e.parts[2] = e.parts[1]
	}
	if len(e.parts) < 4 {
		return errShape
	}
	switch {
	case strings.HasPrefix(mode, "filter"):
		word := value.Str(result)
		if slices.Contains(s.o.StateTerse, word) {
			s.terse(e, result, color)
			return nil
		}
		if slices.Contains(s.o.StateExclude, word) {
			return nil
		}
	case strings.HasPrefix(mode, "terse"), strings.HasPrefix(mode, "mixed") && result != false,
		strings.HasPrefix(mode, "changes") && fine && !changed:
		s.terse(e, result, color)
		return nil
	}
	s.block(e, result, color, text)
	return nil
}

func (s *stateLog) time(ret value.Map) {
	v, ok := ret.Get("duration")
	if !ok {
		v = int64(0)
	}
	ms, ok := toFloat(v)
	if !ok {
		s.o.warn("Cannot parse a float from duration " + value.Str(v))
		return
	}
	if _, parallel := ret.Get("__parallel__"); parallel {
		s.parallel = max(s.parallel, ms)
	} else {
		s.durations += ms
	}
}

// changes formats and counts a state's changes.
func (s *stateLog) changes(ret value.Map, changes any, compressed int) (changed bool, text string,
	err error) {
	switch ret.String("name") {
	case "state.orch", "state.orchestrate", "state.sls":
		nested, err := highstates(s.o, changes, s.level+1)
		if err != nil {
			return false, "", err
		}
		s.changed++
		return true, indentLines("\n"+nested, 14*s.level), nil
	}
	if !value.Truth(changes) {
		return false, "", nil
	}
	m, ok := changes.(value.Map)
	if !ok {
		s.changed++
		return true, "Invalid Changes data: " + value.Str(changes), nil
	}
	if inner, ok := m.Get("ret"); ok && inner != nil && m.String("out") == "highstate" {
		hosts, ok := inner.(value.Map)
		if !ok {
			return false, "", errShape
		}
		for _, p := range hosts {
			one, c, err := host(s.o, value.Str(p.Key), p.Value, 1)
			if err != nil {
				return false, "", err
			}
			lines := splitLines(one)
			for i := range lines {
				lines[i] = strings.Repeat(" ", 14) + lines[i]
			}
			text += "\n" + strings.Join(lines, "\n")
			changed = changed || c
		}
	} else {
		changed = true
		nested, err := nestedText(s.o, Result{Value: m, Indent: 14})
		if err != nil {
			return false, "", err
		}
		text = "\n" + strings.TrimRightFunc(nested, value.IsSpace)
	}
	switch {
	case changed && compressed > 1:
		all, _ := m.Get("compressed changes")
		each, _ := all.(value.Map)
		s.changed += max(len(each), 1)
	case changed:
		s.changed++
	}
	return changed, text, nil
}

func indentLines(text string, n int) string {
	blanks := strings.Repeat(" ", n)
	return blanks + strings.ReplaceAll(text, "\n", "\n"+blanks)
}
