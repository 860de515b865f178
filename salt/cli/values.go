package cli

import (
	"strings"

	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// parseWords reads the arguments of a function: positional ones and name=value.
func parseWords(words []string, noParse string) (args []any, kwargs value.Map) {
	return yaml11.ParseArgs(words, splitNames(noParse)...)
}

// parseInput is parseWords as the single list that is sent to minions.
func parseInput(words []string, noParse string) []any {
	return yaml11.Condition(parseWords(words, noParse))
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
func yamlArg(text string) any { return yaml11.ParseArg(text) }
