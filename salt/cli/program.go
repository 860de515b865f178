package cli

// Program describes a command whose options another package parses, for
// completion and manual pages.
type Program struct {
	Name, Usage, About string
	Options            []Option
	Words              []string // the values of the first operand; nil: any text
	Examples           []string
}

// Option is one option of a Program.
type Option struct {
	Names string // as in "-c --config-dir"
	Value string // name of the value in help; "" for an option without one
	Help  string
	Words []string // the values that a shell offers
}

func (p Program) parser() *parser {
	made := &parser{prog: p.Name, usage: p.Usage, about: p.About, examples: p.Examples,
		words: p.Words}
	for _, o := range p.Options {
		kind := flagOn
		if o.Value != "" {
			kind = textValue
		}
		made.options = append(made.options,
			option{names: o.Names, dest: o.Value, kind: kind, value: o.Value, help: o.Help,
				choice: o.Words})
	}
	return made
}
