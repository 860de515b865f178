package output

// Options are the settings of one command, from flags and configuration. Start with Defaults.
type Options struct {
	// Output is --out or the option output. It wins over the result's own outputter, except for
	// "highstate", which only a result can ask for.
	Output string
	// Color turns colours on. The caller must check that standard output is a terminal.
	Color bool
	// Theme overrides colours: name such as RED to code such as 0;31 (option color_theme).
	Theme map[string]string
	// StripColors replaces ESC in data by "?" (option strip_colors).
	StripColors bool
	// Indent is --out-indent or the option output_indent.
	Indent Indent
	// Static and Fun describe a command with --static, whose result names no outputter.
	Static bool
	Fun    string

	StateOutput    string // full, terse, mixed, changes, filter, each also with _id
	StateVerbose   bool
	StateDiff      bool   // state_output_diff
	StateProfile   bool   // state_output_profile
	StatePercent   bool   // state_output_pct
	StateCompress  bool   // state_compress_ids
	StateTabular   bool   // state_tabular: True
	StateTabularAs string // state_tabular as a format
	StateExclude   []string
	StateTerse     []string

	// Other formats a result with an outputter that is not native; known is false for an unknown
	// name. nil means that there are no others.
	Other func(name string, r Result) (text string, known bool, err error)
	// Warn receives messages for the log on standard error; nil drops them.
	Warn func(text string)
}

// Indent is a number of blanks, or the value pretty of the option output_indent.
type Indent struct {
	Set    bool // false: the outputter's default
	N      int  // negative: all on one line
	Pretty bool // four blanks and sorted keys; JSON only
}

// Defaults are the settings of a master without configuration, colours off.
func Defaults() Options {
	return Options{StripColors: true, StateOutput: "full", StateVerbose: true, StateProfile: true}
}

// colors are the escape sequences by name; all are empty if colours are off.
type colors struct {
	red, lightRed, green, lightGreen, yellow, lightYellow, lightBlue, blue, magenta, lightMagenta,
	cyan, darkGray, lightGray, white, end string
}

func (o Options) colors() colors {
	if !o.Color {
		return colors{}
	}
	code := func(name, fallback string) string {
		if c, ok := o.Theme[name]; ok {
			fallback = c
		}
		return "\x1b[" + fallback + "m"
	}
	return colors{
		red: code("RED", "0;31"), lightRed: code("LIGHT_RED", "0;1;31"),
		green: code("GREEN", "0;32"), lightGreen: code("LIGHT_GREEN", "0;1;32"),
		yellow: code("YELLOW", "0;33"), lightYellow: code("LIGHT_YELLOW", "0;1;33"),
		blue: code("BLUE", "0;34"), lightBlue: code("LIGHT_BLUE", "0;1;34"),
		magenta: code("MAGENTA", "0;35"), lightMagenta: code("LIGHT_MAGENTA", "0;1;35"),
		cyan:     code("CYAN", "0;36"),
		darkGray: code("DARK_GRAY", "0;1;30"), lightGray: code("LIGHT_GRAY", "0;37"),
		white: code("WHITE", "0;1;37"), end: code("ENDC", "0;0"),
	}
}
