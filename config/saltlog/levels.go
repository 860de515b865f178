package saltlog

import (
	"fmt"
	"log/slog"
	"strings"
)

// Levels are the levels of single loggers, as Salt's option log_granular_levels has them.
type Levels []namedLevel

type namedLevel struct {
	name  string // without salt. or clustermaster. before it; "" is all
	level slog.Level
}

// ParseLevels reads logger names and their levels. salt.cluster, clustermaster.cluster and cluster
// name the same logger; salt and clustermaster mean all loggers.
func ParseLevels(levels map[string]string) (Levels, error) {
	var list Levels
	for name, text := range levels {
		level, err := ParseLevel(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, root := range []string{"salt", "clustermaster"} {
			if name == root {
				name = ""
			}
			name = strings.TrimPrefix(name, root+".")
		}
		list = append(list, namedLevel{name, level})
	}
	return list, nil
}

// of returns the level of the longest name that is the component or a parent of it.
func (ls Levels) of(component string, fallback slog.Level) slog.Level {
	best := -1
	for _, l := range ls {
		if len(l.name) > best && (l.name == "" || component == l.name ||
			strings.HasPrefix(component, l.name+".")) {
			best, fallback = len(l.name), l.level
		}
	}
	return fallback
}
