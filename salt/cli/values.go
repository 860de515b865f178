package cli

import (
	"strings"

	"clustermaster/internal/yaml11"
	"clustermaster/wire"
)

// parseWords reads the arguments of a function: positional ones, and name=value.
func parseWords(words []string, noParse string) (args []any, kwargs wire.Map) {
	a, k := yaml11.ParseArgs(words, splitNames(noParse)...)
	args, _ = yaml11.ToWire(append([]any{}, a...)).([]any)
	kwargs, _ = yaml11.ToWire(k).(wire.Map)
	return args, kwargs
}

// parseInput is parseWords in the one list that travels to minions.
func parseInput(words []string, noParse string) []any {
	args, kwargs := parseWords(words, noParse)
	if len(kwargs) > 0 {
		args = append(args, append(wire.Map{{Key: "__kwarg__", Value: true}}, kwargs...))
	}
	return args
}

func splitNames(list string) []string {
	var names []string
	for _, n := range strings.Split(list, ",") {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	return names
}

// yamlArg reads the value of an option that takes YAML, such as --metadata.
func yamlArg(text string) any { return yaml11.ToWire(yaml11.ParseArg(text)) }
