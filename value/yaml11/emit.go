package yaml11

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bestWidth is the column after which a scalar is folded at the next space.
const bestWidth = 80

// context describes the position of a node.
type context struct{ inMap, simpleKey bool }

// emitter writes a tree as libyaml does, which is what Salt's dumper uses.
type emitter struct {
	out        []byte
	column     int
	step       int
	indent     int
	flowLevel  int
	ascii      bool // escape everything else
	whitespace bool // the last character was white space or an indicator's
	indention  bool // only indentation and - ? : on this line so far
}

func (e *emitter) put(r rune) {
	e.out = utf8.AppendRune(e.out, r)
	e.column++
}

func (e *emitter) newline() {
	e.out = append(e.out, '\n')
	e.column = 0
}

func (e *emitter) writeIndent() {
	indent := max(e.indent, 0)
	if !e.indention || e.column > indent || e.column == indent && !e.whitespace {
		e.newline()
	}
	for e.column < indent {
		e.put(' ')
	}
	e.whitespace, e.indention = true, true
}

func (e *emitter) indicator(s string, needSpace, isSpace, isIndention bool) {
	if needSpace && !e.whitespace {
		e.put(' ')
	}
	for _, r := range s {
		e.put(r)
	}
	e.whitespace = isSpace
	e.indention = e.indention && isIndention
}

// deeper goes one level in; the returned function goes back.
func (e *emitter) deeper(flow, indentless bool) func() {
	old := e.indent
	switch {
	case e.indent < 0 && flow:
		e.indent = e.step
	case e.indent < 0:
		e.indent = 0
	case !indentless:
		e.indent += e.step
	}
	return func() { e.indent = old }
}

func (e *emitter) finish() {
	e.writeIndent()
}

func (e *emitter) node(t *tree, c context) {
	if t.shape == scalarShape {
		e.scalar(t, c)
		return
	}
	if t.tag != "" {
		e.indicator(t.tag, true, false, false)
	}
	flow := t.flow || e.flowLevel > 0
	switch {
	case t.shape == listShape && flow:
		e.flow("[", "]", t)
	case t.shape == listShape:
		defer e.deeper(false, c.inMap && !e.indention)()
		for _, item := range t.items {
			e.writeIndent()
			e.indicator("-", true, false, true)
			e.node(item, context{})
		}
	case flow:
		e.flow("{", "}", t)
	default:
		defer e.deeper(false, false)()
		for i := 0; i < len(t.items); i += 2 {
			e.writeIndent()
			e.entry(t.items[i], t.items[i+1], e.writeIndent)
		}
	}
}

func (e *emitter) flow(open, shut string, t *tree) {
	e.indicator(open, true, true, false)
	back := e.deeper(true, false)
	e.flowLevel++
	wrap := func() {
		if e.column > bestWidth {
			e.writeIndent()
		}
	}
	step := 1
	if t.shape == mapShape {
		step = 2
	}
	for i := 0; i < len(t.items); i += step {
		if i > 0 {
			e.indicator(",", false, false, false)
		}
		wrap()
		if step == 1 {
			e.node(t.items[i], context{})
		} else {
			e.entry(t.items[i], t.items[i+1], wrap)
		}
	}
	e.flowLevel--
	back()
	e.indicator(shut, false, false, false)
}

// entry writes a key and its value; before writes the part before the : of a key that is too long
// for one line.
func (e *emitter) entry(key, value *tree, before func()) {
	if e.simpleKey(key) {
		e.node(key, context{inMap: true, simpleKey: true})
		e.indicator(":", false, false, false)
	} else {
		e.indicator("?", true, false, true)
		e.node(key, context{inMap: true})
		before()
		e.indicator(":", true, false, true)
	}
	e.node(value, context{inMap: true})
}

func (e *emitter) simpleKey(t *tree) bool {
	if t.shape != scalarShape {
		return len(t.items) == 0
	}
	return !e.analyze(t.text).multiline && len(t.text)+len(t.tag) <= 128
}

func (e *emitter) scalar(t *tree, c context) {
	a := e.analyze(t.text)
	defer e.deeper(true, false)()
	switch {
	case t.tag != "":
		e.indicator(t.tag, true, false, false)
	case t.time && e.flowLevel > 0:
		e.indicator("!", true, false, false)
	}
	fold := !c.simpleKey
	switch {
	case t.literal && a.block && e.flowLevel == 0 && !c.simpleKey:
		e.literal(t.text)
	case t.literal, c.simpleKey && a.multiline:
		e.doubleQuoted(t.text, fold)
	case t.plainOK && (a.blockPlain && e.flowLevel == 0 || a.flowPlain && e.flowLevel > 0) &&
		(t.text != "" || e.flowLevel == 0 && !c.simpleKey):
		e.plain(t.text, fold)
	case a.singleQuoted:
		e.singleQuoted(t.text, fold)
	default:
		e.doubleQuoted(t.text, fold)
	}
}

// analysis says in which styles a text can be written.
type analysis struct {
	multiline, flowPlain, blockPlain, singleQuoted, block bool
}

func (e *emitter) analyze(s string) analysis {
	if s == "" {
		return analysis{blockPlain: true, singleQuoted: true}
	}
	runes := []rune(s)
	blockIndicator := strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...")
	flowIndicator := blockIndicator
	var breaks, special, leading, trailingSpace, trailingBreak, breakSpace, spaceBreak bool
	var previousSpace, previousBreak bool
	blankBefore := true
	for i, r := range runes {
		last := i == len(runes)-1
		blankAfter := last || isBlank(runes[i+1])
		if i == 0 {
			switch r {
			case '#', ',', '[', ']', '{', '}', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`':
				flowIndicator, blockIndicator = true, true
			case '?', ':':
				flowIndicator = true
				blockIndicator = blockIndicator || blankAfter
			case '-':
				if blankAfter {
					flowIndicator, blockIndicator = true, true
				}
			}
		} else {
			switch r {
			case ',', '?', '[', ']', '{', '}':
				flowIndicator = true
			case ':':
				flowIndicator = true
				blockIndicator = blockIndicator || blankAfter
			case '#':
				if blankBefore {
					flowIndicator, blockIndicator = true, true
				}
			}
		}
		special = special || !e.shows(r)
		switch {
		case r == ' ':
			leading = leading || i == 0
			trailingSpace = trailingSpace || last
			breakSpace = breakSpace || previousBreak
			previousSpace, previousBreak = true, false
		case isBreak(r):
			breaks = true
			leading = leading || i == 0
			trailingBreak = trailingBreak || last
			spaceBreak = spaceBreak || previousSpace
			previousSpace, previousBreak = false, true
		default:
			previousSpace, previousBreak = false, false
		}
		blankBefore = isBlank(r)
	}
	noPlain := leading || trailingSpace || trailingBreak || breakSpace || spaceBreak ||
		special || breaks
	return analysis{
		multiline:    breaks,
		flowPlain:    !noPlain && !flowIndicator,
		blockPlain:   !noPlain && !blockIndicator,
		singleQuoted: !breakSpace && !spaceBreak && !special,
		block:        !trailingSpace && !spaceBreak && !special,
	}
}

func isBreak(r rune) bool {
	return r == '\n' || r == '\r' || r == 0x85 || r == 0x2028 || r == 0x2029
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' || isBreak(r) }

// shows reports whether a character is written unescaped.
func (e *emitter) shows(r rune) bool { return isPrintable(r) && (!e.ascii || r < 0x80) }

// isPrintable follows libyaml, which escapes everything outside the basic plane.
func isPrintable(r rune) bool {
	return r == '\n' || r >= 0x20 && r <= 0x7e || r >= 0xa0 && r <= 0xd7ff || r >= 0xe000 &&
		r <= 0xfffd && r != 0xfeff
}

func (e *emitter) plain(s string, fold bool) {
	if !e.whitespace && (s != "" || e.flowLevel > 0) {
		e.put(' ')
	}
	e.words([]rune(s), fold, true)
	e.whitespace, e.indention = false, false
}

func (e *emitter) singleQuoted(s string, fold bool) {
	e.indicator("'", true, false, false)
	if e.words([]rune(s), fold, false) {
		e.writeIndent()
	}
	e.indicator("'", false, false, false)
	e.whitespace, e.indention = false, false
}

// words writes the text of a plain or single-quoted scalar and reports whether it ended with a line
// break.
func (e *emitter) words(runes []rune, fold, plain bool) (broken bool) {
	var spaces bool
	for i, r := range runes {
		last := i == len(runes)-1
		switch {
		case r == ' ':
			inside := plain || i > 0 && !last
			if fold && !spaces && e.column > bestWidth && inside && !(!last && runes[i+1] == ' ') {
				e.writeIndent()
			} else {
				e.put(r)
			}
			spaces = true
		case isBreak(r):
			if !broken && r == '\n' {
				e.newline()
			}
			e.writeBreak(r)
			e.indention, broken = true, true
		default:
			if broken {
				e.writeIndent()
			}
			if r == '\'' && !plain {
				e.put(r)
			}
			e.put(r)
			e.indention, spaces, broken = false, false, false
		}
	}
	return broken
}

func (e *emitter) writeBreak(r rune) {
	if r == '\n' {
		e.newline()
		return
	}
	e.put(r)
	e.column = 0
}

var escapes = map[rune]string{
	0: "0", 7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 0x1b: "e",
	'"': `"`, '\\': `\`, 0x85: "N", 0xa0: "_", 0x2028: "L", 0x2029: "P",
}

func (e *emitter) doubleQuoted(s string, fold bool) {
	e.indicator(`"`, true, false, false)
	runes := []rune(s)
	var spaces bool
	for i, r := range runes {
		last := i == len(runes)-1
		switch {
		case !e.shows(r) || isBreak(r) || r == '"' || r == '\\':
			text, ok := escapes[r]
			switch {
			case ok:
			case r <= 0xff:
				text = fmt.Sprintf("x%02X", r)
			case r <= 0xffff:
				text = fmt.Sprintf("u%04X", r)
			default:
				text = fmt.Sprintf("U%08X", r)
			}
			e.put('\\')
			for _, c := range text {
				e.put(c)
			}
			spaces = false
		case r == ' ':
			if fold && !spaces && e.column > bestWidth && i > 0 && !last {
				e.writeIndent()
				if runes[i+1] == ' ' {
					e.put('\\')
				}
			} else {
				e.put(r)
			}
			spaces = true
		default:
			e.put(r)
			spaces = false
		}
	}
	e.indicator(`"`, false, false, false)
	e.whitespace, e.indention = false, false
}

// literal writes a block scalar. It gets only base64 text, whose lines all end and are never blank.
func (e *emitter) literal(s string) {
	e.indicator("|", true, false, false)
	e.newline()
	e.indention, e.whitespace = true, true
	for line := range strings.Lines(s) {
		e.writeIndent()
		for _, r := range strings.TrimSuffix(line, "\n") {
			e.put(r)
		}
		e.newline()
		e.indention = true
	}
}
