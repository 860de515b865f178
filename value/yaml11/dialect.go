package yaml11

import (
	"bytes"
	"regexp"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// The library's scanner is libyaml 0.2.1; PyYAML includes 0.2.5, which reads a few things
// differently. This file rewrites the source for the older scanner and refuses what only that one
// accepts. Two rarities remain: in a flow collection, a ? after a blank after a quote sign or dash
// inside a plain scalar ([a' ?b]), and a scalar that ends with two colons ({a:: }), are errors here
// and text in libyaml.

var versionLine = regexp.MustCompile(`^%YAML[ \t]+1\.2[ \t]*(?:#.*)?\r?$`)

// allowVersion12 replaces the version 1.2 of a YAML document by 1.1, which the scanner accepts;
// libyaml reads both in the same way.
func allowVersion12(b []byte) []byte {
	if !bytes.Contains(b, []byte("%YAML")) {
		return b
	}
	rest := b
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		text := bytes.TrimSpace(line)
		switch {
		case versionLine.Match(line):
			at := len(b) - len(rest) + bytes.Index(line, []byte("1.2"))
			out := bytes.Clone(b)
			out[at+2] = '1'
			return out
		case len(text) > 0 && text[0] != '#' && line[0] != '%':
			return b
		}
		rest = after
	}
	return b
}

// hideQuestions replaces each ? inside a word by a private character, because the old scanner ends
// a plain scalar in a flow collection there. It returns that character, or 0 if it replaced
// nothing.
func hideQuestions(b []byte) ([]byte, rune) {
	if !bytes.ContainsRune(b, '?') || !bytes.ContainsAny(b, "[{") || !utf8.Valid(b) {
		return b, 0
	}
	mark := rune(0xe03f)
	for bytes.ContainsRune(b, mark) {
		if mark++; mark > 0xf8ff {
			return b, 0
		}
	}
	out := make([]byte, 0, len(b)+16)
	start := true       // a token may start here
	var first byte      // of the word
	var last byte = ' ' // the character before
	for i := 0; i < len(b); i++ {
		c := b[i]
		if end := wideEnd(b[i:]); end > 0 {
			out = append(out, b[i:i+end]...)
			start, last, first = true, ' ', 0
			i += end - 1
			continue
		}
		if c == '?' && !start {
			out = utf8.AppendRune(out, mark)
			last = c
			continue
		}
		switch {
		case c == ' ' || c == '\t':
			// Words of one plain scalar, unless there was an indicator or a property.
			if last != ' ' {
				start = !isWord(last) || strings.IndexByte("&*!", first) >= 0
			}
			last, first = ' ', 0
		case strings.IndexByte("\r\n,[]{}?", c) >= 0:
			start, last, first = true, ' ', 0
		default:
			if first == 0 {
				first = c
			}
			start, last = false, c
		}
		out = append(out, c)
	}
	return out, mark
}

// wideEnd is the length of the end of a line at the start of b, if it has more than one byte.
func wideEnd(b []byte) int {
	for _, end := range []string{"\u0085", "\u2028", "\u2029"} {
		if len(b) >= len(end) && string(b[:len(end)]) == end {
			return len(end)
		}
	}
	return 0
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80 ||
		c == '?'
}

// showQuestions undoes hideQuestions in every value.
func showQuestions(n *yaml.Node, mark rune) {
	if mark == 0 {
		return
	}
	hidden := string(mark)
	n.Value = strings.ReplaceAll(n.Value, hidden, "?")
	n.Tag = strings.ReplaceAll(n.Tag, hidden, "?")
	for _, c := range n.Content {
		showQuestions(c, mark)
	}
}

// vet refuses what libyaml 0.2.5 refuses and the old scanner accepts: a repeated anchor, and in a
// flow collection a plain scalar that starts with a ? or has a colon before a bracket or comma.
func vet(n *yaml.Node, flow bool, anchors map[string]bool) *Error {
	if n.Kind == yaml.AliasNode {
		return nil
	}
	if n.Anchor != "" {
		if anchors[n.Anchor] {
			return fault(n, "found duplicate anchor %q", n.Anchor)
		}
		anchors[n.Anchor] = true
	}
	if n.Kind == yaml.ScalarNode && flow && n.Style&^yaml.TaggedStyle == 0 &&
		(strings.HasSuffix(n.Value, ":") || strings.Contains(n.Value, ":?") ||
			strings.HasPrefix(n.Value, "?")) {
		return fault(n, "found unexpected ':' or '?'")
	}
	flow = flow || n.Style&yaml.FlowStyle != 0
	for _, c := range n.Content {
		if err := vet(c, flow, anchors); err != nil {
			return err
		}
	}
	return nil
}
