package target

import (
	"regexp"
	"strings"
)

// typed recognizes a word that names its engine.
var typed = regexp.MustCompile(`^[A-Z]@`)

// expandNodegroup replaces a nodegroup by words of a compound expression. A nodegroup that is
// unknown, or that contains itself, gives none.
func expandNodegroup(src Groups, name string) []string {
	x := &expansion{src: src}
	words, ok := x.expand(name, nil, true)
	if !ok || x.words > maxWords {
		return nil
	}
	return words
}

// ForMinions makes a target as minions get it: with the definitions of nodegroups, which minions
// don't know, and with single blanks between the words of a compound expression.
func ForMinions(tgtType string, tgt any, src Groups) (string, any) {
	words := writtenOut(tgtType, tgt, src)
	if len(words) == 0 {
		return tgtType, tgt
	}
	return "compound", strings.Join(words, " ")
}

// UnknownGroupError is the error of a target that names an unknown nodegroup.
type UnknownGroupError struct{ Name string }

func (e *UnknownGroupError) Error() string { return "Node group " + e.Name + " unavailable" }

// CheckGroups returns an *UnknownGroupError for a target that names an unknown nodegroup. A
// definition may name unknown ones; they mean no minions.
func CheckGroups(tgtType string, tgt any, src Groups) error {
	var named []string
	switch tgtType {
	case "nodegroup":
		name, _ := tgt.(string)
		named = []string{name}
	case "compound":
		words, _ := asWords(tgt)
		for _, w := range words {
			if name, ok := groupOf(w); ok {
				named = append(named, name)
			}
		}
	}
	for _, name := range named {
		if _, known := src.Nodegroup(name); !known {
			return &UnknownGroupError{name}
		}
	}
	return nil
}

// ForMaster makes a target as commands send it: with the definitions of nodegroups in src alone, so
// that those of the master don't count. The error is that of CheckGroups.
func ForMaster(tgtType string, tgt any, src Groups) (string, any, error) {
	if err := CheckGroups(tgtType, tgt, src); err != nil {
		return "", nil, err
	}
	if _, ok := asWords(tgt); tgtType == "nodegroup" || tgtType == "compound" && ok {
		return "compound", strings.Join(writtenOut(tgtType, tgt, src), " "), nil
	}
	return tgtType, tgt, nil
}

// writtenOut returns the words of a target of type nodegroup or compound, with the definitions of
// nodegroups. It returns none for other types, and for a target without minions.
func writtenOut(tgtType string, tgt any, src Groups) []string {
	switch tgtType {
	case "nodegroup":
		name, _ := tgt.(string)
		return expandNodegroup(src, name)
	case "compound":
		words, _ := asWords(tgt)
		words, _ = writeOut(src, words)
		return words
	}
	return nil
}

// groupOf returns the nodegroup that a word of a compound expression names.
func groupOf(w string) (name string, ok bool) {
	name, ok = strings.CutPrefix(w, "N@")
	return name, ok && name != ""
}

type expansion struct {
	src   Groups
	words int // seen so far: groups that name each other grow fast
}

func (x *expansion) expand(name string, open []string, first bool) ([]string, bool) {
	for _, o := range open {
		if o == name {
			return nil, false
		}
	}
	definition, ok := x.src.Nodegroup(name)
	if !ok {
		return nil, false
	}
	words, ok := asWords(definition)
	if !ok {
		return nil, false
	}
	x.words += len(words)
	if x.words > maxWords {
		return nil, false
	}
	nested := false
	out := make([]string, 0, len(words)+2)
	for _, w := range words {
		inner, isGroup := groupOf(w)
		if !isGroup {
			out = append(out, w)
			continue
		}
		nested = true
		group, _ := x.expand(inner, append(open[:len(open):len(open)], name), false)
		out = append(out, group...)
	}
	if joined, ok := bareList(words); ok && (!first || !nested) {
		return []string{joined}, true
	}
	if first && !nested {
		return out, true
	}
	if len(out) > 0 {
		out = append(append([]string{"("}, out...), ")")
	}
	return out, true
}

// bareList recognizes a definition that holds only names: a list of ids, or of regular expressions
// if one of them looks like one.
func bareList(words []string) (string, bool) {
	kind := "L@"
	for _, w := range words {
		if isOperator(w) || strings.Contains(w, "*") || typed.MatchString(w) {
			return "", false
		}
		if strings.ContainsAny(w, `([{\?}])`) {
			kind = "E@"
		}
	}
	if len(words) == 0 {
		return "", false
	}
	return kind + strings.Join(words, ","), true
}
