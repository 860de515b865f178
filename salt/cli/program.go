package cli

// Program describes a command that this package does not parse, for completion and manual pages.
type Program struct {
	Name, Usage, About string
	Options            []Option
	Words              []string // what the first operand may be; nil: any text
	Examples           []string
}

// Option is one option of a Program.
type Option struct {
	Names string // as in "-c --config-dir"
	Value string // how help names its value; "" for an option that takes none
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
