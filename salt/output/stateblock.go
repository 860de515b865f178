package output

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"clustermaster/value"
)

// block prints one state in full.
func (s *stateLog) block(e entry, result any, color, changes string) {
	row := func(label, text string) {
		s.lines = append(s.lines,
			"    "+color+label+": "+text+s.c.end)
	}
	s.add(color, "----------")
	row("      ID", e.parts[1])
	row("Function", e.parts[0]+"."+e.parts[3])
	if e.parts[1] != e.parts[2] {
		row("    Name", e.parts[2])
	}
	row("  Result", value.Str(result))
	row(" Comment", comment(e.ret))
	if start, ok := e.ret.Get("start_time"); ok && s.o.StateProfile {
		row(" Started", value.Str(start))
		duration := ""
		if d, ok := e.ret.Get("duration"); ok && d != "" {
			duration = value.Str(d) + " ms"
		}
		row("Duration", duration)
	}
	s.add(color, "     Changes:   "+changes)
	if w, ok := e.ret.Get("warnings"); ok {
		s.counts.warnings++
		s.counts.seen["warnings"] = true
		text := strings.TrimLeftFunc(fill(joinTexts(w), 80, strings.Repeat(" ", 14)), value.IsSpace)
		s.lines = append(s.lines, "   "+s.c.lightRed+" Warnings: "+text+s.c.end)
	}
}

func joinTexts(v any) string {
	list, ok := v.([]any)
	if !ok {
		return value.Str(v)
	}
	parts := make([]string, len(list))
	for i, e := range list {
		parts[i] = value.Str(e)
	}
	return strings.Join(parts, "\n")
}

// comment returns the comment with its lines aligned, followed by the state's data, if any.
func comment(ret value.Map) string {
	v, _ := ret.Get("comment")
	text := strings.ReplaceAll(strings.TrimFunc(value.Str(v), value.IsSpace), "\n",
		"\n"+strings.Repeat(" ", 14))
	data, ok := ret.Get("data")
	if !ok {
		return text
	}
	switch x := data.(type) {
	case []any:
		for _, e := range x {
			text += " " + value.Str(e)
		}
	case value.Map:
		for _, p := range x {
			text += "\n\t\t" + value.Str(p.Key) + ": " + value.Str(p.Value)
		}
	default:
		text += " " + value.Str(x)
	}
	return text
}

// terse prints one state on one line.
func (s *stateLog) terse(e entry, result any, color string) {
	word := "Clean"
	if changes, _ := e.ret.Get("changes"); value.Truth(changes) {
		word = "Changed"
	}
	if result == false {
		word = "Failed"
	} else if result == nil {
		word = "Differs"
	}
	field := func(key string) string {
		v, _ := e.ret.Get(key)
		return value.Str(v)
	}
	_, started := e.ret.Get("start_time")
	profile := s.o.StateProfile && started
	module, name, fun := e.parts[0], e.parts[2], e.parts[len(e.parts)-1]

	if s.o.StateTabularAs != "" {
		s.lines = append(s.lines, formatRow(s.o.StateTabularAs,
			[]any{color, name, module, fun, word, s.c.end, e.ret}))
		return
	}
	var b strings.Builder
	warnings, warned := e.ret.Get("warnings")
	if s.o.StateTabular {
		if warned {
			b.WriteString(s.c.lightRed + "Warnings:\n" + joinTexts(warnings) + s.c.end + "\n")
		}
		b.WriteString(color)
		if profile {
			b.WriteString(field("start_time") + " [" + padLeft(field("duration"), 7) + " ms] ")
		}
		b.WriteString(padLeft(module, 10) + "." + padRight(fun, 10) + " " + padRight(word, 7) +
			"   Name: " + name + s.c.end)
	} else {
		if warned {
			b.WriteString(s.c.lightRed + "Warnings:\n" + joinTexts(warnings) + s.c.end)
		}
		b.WriteString(" " + color + " Name: " + name + " - Function: " + module + "." + fun +
			" - Result: " + word)
		if profile {
			b.WriteString(" - Started: " + field("start_time") + " - Duration: " +
				field("duration") + " ms")
		}
		b.WriteString(s.c.end)
	}
	s.lines = append(s.lines, b.String())
}

// summary prints the counts of one minion below a rule as wide as its widest line.
func (s *stateLog) summary(id string) {
	const label = 9 // of "Succeeded", the longest
	width := label + s.counts.digits() + 2
	rule := strings.Repeat("-", width)
	count := func(name, n string) string { return name + ": " + padLeft(n, width-len(name)-2) }

	s.add(s.c.cyan, "\nSummary for "+id+"\n"+rule)
	var notes []string
	if s.counts.none > 0 {
		notes = append(notes, s.c.lightYellow+"unchanged="+strconv.Itoa(s.counts.none)+s.c.end)
	}
	if s.changed > 0 {
		notes = append(notes, s.c.green+"changed="+strconv.Itoa(s.changed)+s.c.end)
	}
	good := s.c.green + count("Succeeded", strconv.Itoa(s.counts.yes+s.counts.none)) + s.c.end
	if len(notes) > 0 {
		good += " (" + strings.Join(notes, ", ") + ")"
	}
	s.lines = append(s.lines, good)
	failColor := s.c.cyan
	if s.counts.no > 0 {
		failColor = s.c.red
	}
	s.add(failColor, count("Failed", strconv.Itoa(s.counts.no)))
	if total := s.counts.total(); s.o.StatePercent && total > 0 {
		s.add(s.c.green, count("Success %", percent(s.counts.yes+s.counts.none, total)))
		s.add(failColor, count("Failure %", percent(s.counts.no, total)))
	}
	if s.counts.warnings > 0 {
		s.add(s.c.lightRed, count("Warnings", strconv.Itoa(s.counts.warnings)))
	}
	s.add(s.c.cyan, rule+"\nTotal states run: "+padLeft(strconv.Itoa(s.counts.total()), width-7))
	if s.o.StateProfile {
		sum, unit := s.durations+s.parallel, "ms"
		if sum > 999 {
			sum, unit = sum/1000, "s"
		}
		s.add(s.c.cyan, "Total run time: "+padLeft(strconv.FormatFloat(sum, 'f', 3, 64), width-5)+
			" "+unit)
	}
}

// percent is Python's round(part/total*100, 2).
func percent(part, total int) string {
	f := float64(part) / float64(total) * 100
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'f', 2, 64), 64)
	if math.IsNaN(f) {
		f = 0
	}
	return value.Float(f)
}

func padLeft(s string, width int) string {
	return strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0)) + s
}

func padRight(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 0))
}

// formatRow fills a user's Python format string (state_tabular) with texts by number: {1}, {2:>10},
// {6[duration]!s:>7}. Other text in braces stays as it is.
func formatRow(format string, args []any) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		switch {
		case strings.HasPrefix(format[i:], "{{"), strings.HasPrefix(format[i:], "}}"):
			b.WriteByte(format[i])
			i++
		case format[i] == '{':
			end := strings.IndexByte(format[i:], '}')
			if end < 0 {
				b.WriteString(format[i:])
				return b.String()
			}
			b.WriteString(formatField(format[i+1:i+end], args))
			i += end
		default:
			b.WriteByte(format[i])
		}
	}
	return b.String()
}

func formatField(field string, args []any) string {
	name, spec, _ := strings.Cut(field, ":")
	name, _, _ = strings.Cut(name, "!")
	index, key, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	n, err := strconv.Atoi(index)
	if err != nil || n < 0 || n >= len(args) {
		return "{" + field + "}"
	}
	text := value.Str(args[n])
	if m, ok := args[n].(value.Map); ok && key != "" {
		v, _ := m.Get(key)
		text = value.Str(v)
	}
	align := byte('<')
	if spec != "" && strings.IndexByte("<>^", spec[0]) >= 0 {
		align, spec = spec[0], spec[1:]
	}
	width, err := strconv.Atoi(spec)
	if err != nil || width > 1000 {
		return text
	}
	switch align {
	case '>':
		return padLeft(text, width)
	case '^':
		gap := max(width-utf8.RuneCountInString(text), 0)
		return strings.Repeat(" ", gap/2) + text + strings.Repeat(" ", gap-gap/2)
	}
	return padRight(text, width)
}
