package reactor

import (
	"slices"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// Rule is one entry of the option reactor.
type Rule struct {
	Tag   string // a pattern on tags
	Value any    // a path or a list of paths, as it was given
}

// files are the SLS files of a rule; what is neither a path nor a list of them is none.
func (r Rule) files() []any {
	switch v := r.Value.(type) {
	case string:
		return []any{v}
	case []any:
		return v
	}
	return nil
}

// ReadRules reads the option reactor. Entries that are no map of one pattern count for nothing, as
// in Salt.
func ReadRules(option []any) []Rule {
	var rules []Rule
	for _, e := range option {
		if m, ok := e.(value.Map); ok && len(m) == 1 {
			if tag, ok := m[0].Key.(string); ok {
				rules = append(rules, Rule{tag, m[0].Value})
			}
		}
	}
	return rules
}

// Changes is what operators changed of the option while the cluster ran.
type Changes struct {
	Added   []Rule   // after those of the option
	Deleted []string // tags of the option that count no more, sorted
	Off     bool     // nobody reacts
}

// effective are the rules in force, in order.
func effective(option []Rule, c Changes) []Rule {
	if len(c.Added) == 0 && len(c.Deleted) == 0 {
		return option
	}
	out := make([]Rule, 0, len(option)+len(c.Added))
	for _, r := range option {
		if _, deleted := slices.BinarySearch(c.Deleted, r.Tag); !deleted {
			out = append(out, r)
		}
	}
	return append(out, c.Added...)
}

// matching are the files that react to a tag, in order.
func matching(rules []Rule, tag string) (files []any) {
	for _, r := range rules {
		if fnmatch.Match(r.Tag, tag) {
			files = append(files, r.files()...)
		}
	}
	return files
}
