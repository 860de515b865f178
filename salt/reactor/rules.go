package reactor

import (
	"slices"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// Rule is one entry of the option reactor.
type Rule struct {
	Tag   string // a pattern on tags
	Value any    // a path or a list of paths, unchanged
}

// files returns the SLS files of a rule; a value that is neither a path nor a list of paths gives
// none.
func (r Rule) files() []any {
	switch v := r.Value.(type) {
	case string:
		return []any{v}
	case []any:
		return v
	}
	return nil
}

// ReadRules reads the option reactor. As in Salt it ignores entries that are not a map with one
// pattern.
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

// Changes is the operators' changes to the option while the cluster ran.
type Changes struct {
	Added   []Rule   // after those of the option
	Deleted []string // disabled tags of the option, sorted
	Off     bool     // the cluster does not react
}

// effective returns the rules in force, in order.
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

// matching returns the files that react to a tag, in order.
func matching(rules []Rule, tag string) (files []any) {
	for _, r := range rules {
		if fnmatch.Match(r.Tag, tag) {
			files = append(files, r.files()...)
		}
	}
	return files
}
