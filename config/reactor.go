package config

import (
	"clustermaster/value"
)

// checkReactor reports the entries of the option reactor that Salt ignores silently.
func (l *loader) checkReactor() {
	for i, e := range l.o.Reactor {
		m, ok := e.(value.Map)
		if !ok || len(m) != 1 {
			l.warn("reactor",
				"entry %d is not a map of one tag to files and is ignored: write - 'my/tag': [/srv/reactor/file.sls]",
				i+1)
			continue
		}
		tag, ok := m[0].Key.(string)
		if !ok {
			l.warn("reactor",
				"entry %d has %s instead of a tag and is ignored: write it in quotes", i+1,
				value.Str(m[0].Key))
			continue
		}
		switch files := m[0].Value.(type) {
		case string:
		case []any:
			for _, f := range files {
				if _, ok := f.(string); !ok {
					l.warn("reactor",
						"entry %d (%s) has something other than a path among its files: nothing "+
							"reacts to its events", i+1, tag)
				}
			}
		default:
			l.warn("reactor",
				"entry %d (%s) names no files and is ignored: write a path or a list of paths", i+1, tag)
		}
	}
}
