package runner

import "context"

// Documentation is the family doc. It asks for the registries when a function runs, because the
// family is itself part of one.
func Documentation(runners, wheels func() *Registry) []Function {
	show := func(reg func() *Registry) func(context.Context, *Call) (any, error) {
		return func(context.Context, *Call) (any, error) { return reg().Docs(""), nil }
	}
	return []Function{
		{Name: "doc.runner", Run: show(runners),
			Doc: `Return the documentation of all runner functions.

Example:

    salt-run doc.runner`},
		{Name: "doc.wheel", Run: show(wheels),
			Doc: `Return the documentation of all wheel functions.

Example:

    salt-run doc.wheel`},
	}
}
