package modules

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// sysFunctions list the functions of this package.
func sysFunctions() []function {
	return []function{
		{name: "sys.list_functions", varArgs: true, varKwargs: true,
			run: func(_ context.Context, c *call) (any, error) {
				return c.told(func(name, asked string) bool {
					if strings.ContainsAny(asked, "*.") {
						return fnmatch.Match(asked, name)
					}
					return strings.HasPrefix(name, asked+".")
				}, func(name string) string { return name })
			}},
		{name: "sys.list_modules", varArgs: true,
			run: func(_ context.Context, c *call) (any, error) {
				return c.told(func(name, asked string) bool {
					if strings.Contains(asked, "*") {
						return fnmatch.Match(asked, name)
					}
					return module(name) == asked
				}, module)
			}},
	}
}

func module(name string) string {
	before, _, _ := strings.Cut(name, ".")
	return before
}

// told lists the results of tell, sorted and distinct, for the functions that match any argument,
// or for all functions without arguments.
func (c *call) told(means func(name, asked string) bool, tell func(name string) string) (any,
	error) {
	asked := make([]string, len(c.more))
	for i, v := range c.more {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("names must be text, not %T", v)
		}
		asked[i] = s
	}
	var out []string
	for _, name := range c.Names() {
		if len(asked) == 0 || slices.ContainsFunc(asked,
			func(a string) bool { return means(name, a) }) {
			out = append(out, tell(name))
		}
	}
	slices.Sort(out)
	return value.Texts(slices.Compact(out)), nil
}
