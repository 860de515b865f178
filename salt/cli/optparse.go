package cli

import (
	"fmt"
	"io"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"clustermaster/config"
	"clustermaster/value"
)

// kind is the type of an option's value.
type kind uint8

const (
	flagOn  kind = iota // no value; sets true
	flagOff             // no value; sets false
	textValue
	intValue
	floatValue
)

// option is one option of a command.
type option struct {
	names  string // "-t --timeout"
	dest   string // name of its value; spellings of one option share it
	kind   kind
	value  string   // how help names the value; "" is dest in upper case
	help   string   // one sentence
	choice []string // the only values
	group  string   // "" is the main list
	// fromFile: without the option on the command line, the configuration's option of the name dest
	// counts, as in Salt.
	fromFile bool
}

// parser reads a command line as Python's optparse does. Options may stand anywhere, "--" ends
// them, long names may be shortened as long as they are unique, and short ones may be joined.
type parser struct {
	prog     string
	usage    string // after the program's name
	about    string
	options  []option
	groups   [][2]string // name and description, in the order of help
	examples []string
	words    []string // a shell's choices for the first operand; nil: they depend on the program's name
}

// usageError is a wrong command line. Its text is optparse's, which scripts may match.
type usageError string

func (e usageError) Error() string { return string(e) }

// values are the options given, by dest.
type values struct {
	set map[string]any // bool, string, int, float64; from the configuration also value.Map and []any
}

func (v values) on(dest string) bool     { b, _ := v.set[dest].(bool); return b }
func (v values) text(dest string) string { s, _ := v.set[dest].(string); return s }
func (v values) given(dest string) bool  { _, ok := v.set[dest]; return ok }
func (v values) integer(dest string, fallback int) int {
	if n, ok := v.set[dest].(int); ok {
		return n
	}
	return fallback
}
func (v values) float(dest string) float64 { f, _ := v.set[dest].(float64); return f }

// parse splits a command line into options and operands. The error is a usageError.
func (p *parser) parse(args []string) (values, []string, error) {
	v := values{set: make(map[string]any)}
	operands, err := p.into(v, args)
	return v, operands, err
}

// into parses args on top of the options that v already has, and returns the operands.
func (p *parser) into(v values, args []string) (operands []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(operands, args...), nil
		case strings.HasPrefix(arg, "--"):
			args, err = p.long(v, arg, args)
		case len(arg) > 1 && arg[0] == '-':
			args, err = p.short(v, arg, args)
		default:
			operands = append(operands, arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return operands, nil
}

func (p *parser) long(v values, arg string, args []string) ([]string, error) {
	name, value, hasValue := strings.Cut(arg, "=")
	name, o, err := p.findLong(name)
	if err != nil {
		return nil, err
	}
	if o.kind == flagOn || o.kind == flagOff {
		if hasValue {
			return nil, usageError(name + " option does not take a value")
		}
		return args, o.store(v, name, "")
	}
	if !hasValue {
		if len(args) == 0 {
			return nil, usageError(name + " option requires 1 argument")
		}
		value, args = args[0], args[1:]
	}
	return args, o.store(v, name, value)
}

func (p *parser) short(v values, arg string, args []string) ([]string, error) {
	cluster := arg[1:]
	for cluster != "" {
		_, size := utf8.DecodeRuneInString(cluster) // an argument may be any bytes
		name := "-" + cluster[:size]
		cluster = cluster[size:]
		o, ok := p.find(name)
		if !ok {
			return nil, usageError("no such option: " + name)
		}
		if o.kind == flagOn || o.kind == flagOff {
			if err := o.store(v, name, ""); err != nil {
				return nil, err
			}
			continue
		}
		value := cluster
		if value == "" {
			if len(args) == 0 {
				return nil, usageError(name + " option requires 1 argument")
			}
			value, args = args[0], args[1:]
		}
		return args, o.store(v, name, value)
	}
	return args, nil
}

// fromFile adds the values of the configuration for options that were not given. The error says
// which one can't be read.
func (p *parser) fromFile(v values, o *config.Options) error {
	for i := range p.options {
		opt := &p.options[i]
		x := o.Extra[opt.dest]
		if !opt.fromFile || v.given(opt.dest) || x == nil {
			continue
		}
		switch x := x.(type) {
		case config.Secret:
			v.set[opt.dest] = string(x)
		case value.Map, []any:
			v.set[opt.dest] = x
		default:
			if opt.kind == flagOn {
				v.set[opt.dest] = value.Truth(x)
			} else if err := opt.store(v, opt.dest, value.Str(x)); err != nil {
				return fmt.Errorf("%s: %w", o.ConfFile, err)
			}
		}
	}
	return nil
}

// find returns the option with a name: the last one, if several have it.
func (p *parser) find(name string) (*option, bool) {
	for i := len(p.options) - 1; i >= 0; i-- {
		for _, n := range strings.Fields(p.options[i].names) {
			if n == name {
				return &p.options[i], true
			}
		}
	}
	return nil, false
}

// findLong completes a long name.
func (p *parser) findLong(name string) (string, *option, error) {
	if o, ok := p.find(name); ok {
		return name, o, nil
	}
	var hits []string
	for _, o := range p.options {
		for _, n := range strings.Fields(o.names) {
			if strings.HasPrefix(n, "--") && strings.HasPrefix(n, name) {
				hits = append(hits, n)
			}
		}
	}
	switch len(hits) {
	case 0:
		return "", nil, usageError("no such option: " + name)
	case 1:
		o, _ := p.find(hits[0])
		return hits[0], o, nil
	}
	sort.Strings(hits)
	return "", nil, usageError(fmt.Sprintf("ambiguous option: %s (%s?)", name,
		strings.Join(hits, ", ")))
}

// store reads an option's value. name is the spelling on the command line, for errors.
func (o *option) store(v values, name, value string) error {
	switch o.kind {
	case flagOn:
		v.set[o.dest] = true
	case flagOff:
		v.set[o.dest] = false
	case intValue:
		n, ok := pythonInt(value)
		if !ok {
			return usageError(fmt.Sprintf("option %s: invalid integer value: %s", name,
				quoted(value)))
		}
		v.set[o.dest] = n
	case floatValue:
		f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return usageError(fmt.Sprintf("option %s: invalid floating-point value: %s", name,
				quoted(value)))
		}
		v.set[o.dest] = f
	default:
		if o.choice != nil && !contains(o.choice, value) {
			shown := make([]string, len(o.choice))
			for i, c := range o.choice {
				shown[i] = quoted(c)
			}
			return usageError(fmt.Sprintf("option %s: invalid choice: %s (choose from %s)", name,
				quoted(value), strings.Join(shown, ", ")))
		}
		v.set[o.dest] = value
	}
	return nil
}

// pythonInt reads an integer as Python's int() does, with surrounding blanks, underscores between
// digits, and the prefixes 0x, 0b and 0o.
func pythonInt(s string) (int, bool) {
	n, ok := new(big.Int), false
	s = strings.TrimSpace(s)
	digits := strings.TrimLeft(s, "+-")
	if len(digits) > 1 && digits[0] == '0' && strings.ContainsAny(digits[1:2], "xXbBoO") {
		n, ok = n.SetString(s, 0)
	} else {
		n, ok = n.SetString(strings.ReplaceAll(s, "_", ""), 10)
	}
	if !ok || !n.IsInt64() {
		return 0, false
	}
	return int(n.Int64()), true
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// quoted is Python's repr of a text without escapes.
func quoted(s string) string {
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `\'`) + "'"
}

// fail prints a usage error as optparse does.
func (p *parser) fail(w io.Writer, err error) int {
	fmt.Fprintf(w, "Usage: %s %s\n\n%s: error: %s\n", p.prog, p.usage, p.prog, err)
	return ExitUsage
}
