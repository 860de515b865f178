package yaml11

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"clustermaster/value"
)

// A document may repeat values by alias, so a short text can mean a huge value. Constructed nodes
// count towards these bounds, with their text, which whoever packs or prints the value copies.
const (
	maxDepth        = 1000
	freeNodes       = 100_000
	nodesPerBytes   = 16
	argNodesPerByte = 4  // of an argument; without aliases it has less than two
	nodeText        = 16 // bytes of text that count as a node
)

// Document is a loaded document with the lines of its top-level keys.
type Document struct {
	Value any
	Lines map[string]int // top-level text key to its line, from 1
}

// Load reads one document. An empty one is nil. Errors are *Error.
func Load(b []byte) (any, error) {
	doc, err := LoadDocument(b)
	return doc.Value, err
}

// LoadDocument reads one document and keeps the lines of its top-level keys.
func LoadDocument(b []byte) (Document, error) {
	return load(b, freeNodes+nodesPerBytes*len(b))
}

func load(b []byte, budget int) (Document, error) {
	root, err := parse(b)
	if err != nil || root == nil {
		return Document{}, err
	}
	l := &loader{source: b, budget: budget}
	v, err := l.construct(root, 0)
	if err != nil {
		return Document{}, err
	}
	doc := Document{Value: v, Lines: map[string]int{}}
	if root.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(root.Content); i += 2 {
			if k := root.Content[i]; k.Kind == yaml.ScalarNode {
				doc.Lines[k.Value] = k.Line
			}
		}
	}
	return doc, nil
}

// parse returns the root node, nil for an empty document.
func parse(b []byte) (root *yaml.Node, err error) {
	defer func() {
		// The parser is a translation of C that panics internally; a panic that it doesn't turn
		// into an error must not end the process.
		if r := recover(); r != nil {
			root, err = nil, &Error{Problem: fmt.Sprintf("parser gave up: %v", r)}
		}
	}()
	if !utf8.Valid(b) {
		return nil, &Error{Problem: "the text is not UTF-8"}
	}
	b, hidden := hideQuestions(allowVersion12(b))
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, syntaxError(err)
	}
	var second yaml.Node
	if err := dec.Decode(&second); err == nil {
		return nil, &Error{Line: second.Line,
			Problem: "expected a single document, but found another one"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, nil
	}
	root = doc.Content[0]
	showQuestions(root, hidden)
	if err := vet(root, false, map[string]bool{}); err != nil {
		return nil, err
	}
	return root, nil
}

var syntaxForm = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func syntaxError(err error) *Error {
	m := syntaxForm.FindStringSubmatch(err.Error())
	if m == nil {
		return &Error{Problem: err.Error()}
	}
	line, _ := strconv.Atoi(m[1])
	if strings.HasPrefix(m[2], "did not find expected") {
		line++ // the library counts lines from 0 in these errors
	}
	return &Error{Line: max(line, 1), Problem: m[2]}
}

type loader struct {
	source []byte
	lines  []int // offset of each line, made when first needed
	budget int
}

func fault(n *yaml.Node, format string, args ...any) *Error {
	return &Error{Line: n.Line, Column: n.Column, Problem: fmt.Sprintf(format, args...)}
}

func (l *loader) construct(n *yaml.Node, depth int) (any, error) {
	if l.budget--; l.budget < 0 {
		err := fault(n, "aliases make this document too large")
		err.TooLarge = true
		return nil, err
	}
	if depth > maxDepth {
		err := fault(n, "nested deeper than %d levels, or an alias inside its own anchor", maxDepth)
		err.TooDeep = true
		return nil, err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return l.construct(n.Alias, depth+1)
	case yaml.ScalarNode:
		return l.scalar(n)
	case yaml.SequenceNode:
		return l.sequence(n, depth)
	case yaml.MappingNode:
		return l.mapping(n, depth)
	}
	return nil, fault(n, "unexpected node")
}

// tag returns the node's own tag; without one, its plain text decides. It counts the node's text.
func (l *loader) tag(n *yaml.Node) string {
	l.budget -= len(n.Value) / nodeText
	if n.Style&yaml.TaggedStyle != 0 {
		return n.Tag
	}
	switch n.Kind {
	case yaml.ScalarNode:
		quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
		if quoted || n.Value == "" {
			// libyaml resolves text after the tag "!" as if it were plain, and reads "!" without
			// any text as an empty text.
			if l.nonSpecific(n) == quoted {
				return resolve(n.Value)
			}
			return tagStr
		}
		return resolve(n.Value)
	case yaml.SequenceNode:
		return "!!seq"
	}
	return "!!map"
}

// nonSpecific reports whether the node has the tag "!", which the parser does not report.
func (l *loader) nonSpecific(n *yaml.Node) bool {
	if bytes.IndexByte(l.source, '!') < 0 {
		return false
	}
	if l.lines == nil {
		l.lines = []int{0}
		for _, m := range lineEnd.FindAllIndex(l.source, -1) {
			l.lines = append(l.lines, m[1])
		}
	}
	if n.Line < 1 || n.Line > len(l.lines) || n.Column < 1 {
		return false
	}
	here := l.source[l.lines[n.Line-1]:]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(here)
		here = here[size:]
	}
	if bytes.HasPrefix(here, []byte("&")) { // the tag may be lines behind the anchor
		here = here[len(anchorAndSpace.Find(here)):]
	}
	return loneTag.Match(here)
}

var (
	anchorAndSpace = regexp.MustCompile(`^&[^\s\x{85}\x{2028}\x{2029}]*[\s\x{85}\x{2028}\x{2029}]*`)
	loneTag        = regexp.MustCompile(`^!(?:[\s\x{85}\x{2028}\x{2029}]|$)`)
)

// lineEnd are the ends of lines of YAML 1.1.
var lineEnd = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

func (l *loader) scalar(n *yaml.Node) (any, error) {
	var v any
	var err error
	switch tag := l.tag(n); tag {
	case tagNull:
		return nil, nil
	case tagBool:
		v, err = parseBool(n.Value)
	case tagInt:
		v, err = parseInt(n.Value)
	case tagFloat:
		v, err = parseFloat(n.Value)
	case tagStr, tagTime, "!!python/unicode":
		return n.Value, nil
	case "!!binary":
		v, err = parseBinary(n.Value)
	case "!!seq", "!!map", "!!set", "!!omap", "!!pairs":
		return nil, fault(n, "expected a %s, but found a scalar", strings.TrimPrefix(tag, "!!"))
	default:
		return nil, fault(n, "no value has the tag %s here", tag)
	}
	if err != nil {
		return nil, fault(n, "%v", err)
	}
	return v, nil
}

func (l *loader) sequence(n *yaml.Node, depth int) (any, error) {
	tag := l.tag(n)
	switch tag {
	case "!!seq", "!!omap", "!!pairs":
	default:
		return nil, fault(n, "no list has the tag %s here", tag)
	}
	list := make([]any, 0, len(n.Content))
	for _, c := range n.Content {
		item := c
		if tag != "!!seq" {
			if item = target(c); item.Kind != yaml.MappingNode || len(item.Content) != 2 {
				return nil, fault(c, "expected a mapping of one key in %s", tag)
			}
			k, err := l.construct(item.Content[0], depth+1)
			if err != nil {
				return nil, err
			}
			v, err := l.construct(item.Content[1], depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, []any{k, v})
			continue
		}
		v, err := l.construct(item, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

type entry struct{ key, value *yaml.Node }

func (l *loader) mapping(n *yaml.Node, depth int) (any, error) {
	tag := l.tag(n)
	switch tag {
	case "!!map", "!!set":
	default:
		return nil, fault(n, "no mapping has the tag %s here", tag)
	}
	entries, err := l.flatten(n, depth)
	if err != nil {
		return nil, err
	}
	m := make(value.Map, 0, len(entries))
	seen := make(map[any]struct{}, len(entries))
	for _, e := range entries {
		k, err := l.construct(e.key, depth+1)
		if err != nil {
			return nil, err
		}
		id, ok := value.Identity(k)
		if !ok {
			return nil, fault(e.key, "found unacceptable key: a list or mapping can't be one")
		}
		v, err := l.construct(e.value, depth+1)
		if err != nil {
			return nil, err
		}
		if _, again := seen[id]; again {
			return nil,
				fault(e.key, "found conflicting ID '%v': this key stands twice in one mapping", k)
		}
		seen[id] = struct{}{}
		m = append(m, value.Pair{Key: k, Value: v})
	}
	if tag == "!!set" {
		s := make(value.Set, len(m))
		for i := range m {
			s[i] = m[i].Key
		}
		return s, nil
	}
	return m, nil
}

// flatten puts the entries of merged mappings before the mapping's own, which win. The same key in
// two merged mappings is an error, as in Salt.
func (l *loader) flatten(n *yaml.Node, depth int) ([]entry, error) {
	if depth > maxDepth {
		err := fault(n, "merge keys nested deeper than %d levels", maxDepth)
		err.TooDeep = true
		return nil, err
	}
	var own, merged []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		if l.budget--; l.budget < 0 {
			err := fault(n, "merge keys make this document too large")
			err.TooLarge = true
			return nil, err
		}
		k, v := target(n.Content[i]), target(n.Content[i+1])
		if k.Kind == yaml.ScalarNode && l.tag(k) == tagValue {
			own = append(own, entry{&yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle,
				Value: k.Value, Line: k.Line, Column: k.Column}, n.Content[i+1]})
			continue
		}
		if k.Kind != yaml.ScalarNode || l.tag(k) != tagMerge {
			own = append(own, entry{n.Content[i], n.Content[i+1]})
			continue
		}
		sources := []*yaml.Node{v}
		if v.Kind == yaml.SequenceNode {
			sources = nil
			for j := len(v.Content) - 1; j >= 0; j-- {
				sources = append(sources, target(v.Content[j]))
			}
		}
		for _, s := range sources {
			if s.Kind != yaml.MappingNode {
				return nil, fault(s, "expected a mapping or list of mappings for merging")
			}
			part, err := l.flatten(s, depth+1)
			if err != nil {
				return nil, err
			}
			merged = append(merged, part...)
		}
	}
	if merged == nil {
		return own, nil
	}
	mine := make(map[string]bool, len(own))
	for _, e := range own {
		if k := target(e.key); k.Kind == yaml.ScalarNode {
			mine[k.Value] = true
		}
	}
	all := make([]entry, 0, len(own)+len(merged))
	for _, e := range merged {
		if k := target(e.key); k.Kind != yaml.ScalarNode || !mine[k.Value] {
			all = append(all, e)
		}
	}
	return append(all, own...), nil
}

func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// parseBinary decodes base64 as leniently as Salt and Python's binascii: other characters are
// skipped, the text is padded to a multiple of four characters, whatever they are, and what follows
// a complete padding does not count.
func parseBinary(s string) (any, error) {
	kept := make([]byte, 0, len(s))
	pads := 0
	if more := len(s) % 4; more > 0 {
		s += "===="[more:]
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 0x80:
			return nil, errors.New("binary value is not ASCII")
		case pads >= 4:
		case c == '=':
			if n := len(kept) % 4; n >= 2 {
				if pads++; n+pads >= 4 {
					pads = 4
				}
			}
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' ||
			c == '/':
			kept, pads = append(kept, c), 0
		}
	}
	if pads < 4 && len(kept)%4 != 0 {
		return nil, errors.New("decode base64: incorrect padding")
	}
	out := make([]byte, base64.RawStdEncoding.DecodedLen(len(kept)))
	n, err := base64.RawStdEncoding.Decode(out, kept)
	if err != nil {
		return nil, fmt.Errorf("decode base64: %w", err)
	}
	return out[:n], nil
}
