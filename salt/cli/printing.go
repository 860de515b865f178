package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"clustermaster/config"
	"clustermaster/salt/output"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// printer prints the results of one command to standard output or to --out-file.
type printer struct {
	env    Env
	opts   output.Options
	others *outputters
	file   string // "" is standard output
}

// close must be called when the command has printed all.
func (p *printer) close() { p.others.close() }

// printer combines the options of a command with the configuration. The error is a usageError.
func (e Env) printer(v values, o *config.Options) (*printer, error) {
	out := output.Defaults()
	out.Warn = e.logError
	out.Output = o.Output
	if v.given("output") {
		out.Output = v.text("output")
	}
	out.StripColors = o.StripColors
	switch {
	case v.on("force_color") || value.Truth(o.Extra["force_color"]):
		out.Color = true
	case v.on("no_color") || value.Truth(o.Extra["no_color"]) || !o.Color || !e.Terminal:
		out.Color = false
	default:
		out.Color = true
	}
	if theme, ok := o.Extra["color_theme"].(string); ok && theme != "" && out.Color {
		out.Theme = e.theme(theme)
	}
	out.Indent = indent(v, o)
	out.StateOutput = o.StateOutput
	if v.given("state_output") {
		out.StateOutput = v.text("state_output")
	}
	out.StateVerbose = o.StateVerbose
	switch v.text("state_verbose") {
	case "True", "true":
		out.StateVerbose = true
	case "False", "false":
		out.StateVerbose = false
	}
	out.StateDiff = v.on("state_output_diff") || value.Truth(o.Extra["state_output_diff"])
	if x, ok := o.Extra["state_output_profile"]; ok {
		out.StateProfile = value.Truth(x)
	}
	out.StatePercent = value.Truth(o.Extra["state_output_pct"])
	out.StateCompress = value.Truth(o.Extra["state_compress_ids"])
	switch x := o.Extra["state_tabular"].(type) {
	case bool:
		out.StateTabular = x
	case string:
		out.StateTabularAs = x
	}
	out.StateExclude, out.StateTerse = words(o.Extra["state_output_exclude"]),
		words(o.Extra["state_output_terse"])

	others := &outputters{conf: o, stderr: e.Stderr}
	p := &printer{env: e, opts: out, others: others, file: o.OutputFile}
	p.opts.Other = func(name string, r output.Result) (string, bool, error) {
		if others.opts == nil {
			others.opts = outputterOptions(p.opts)
		}
		return others.text(name, r)
	}
	if v.given("output_file") {
		p.file = v.text("output_file")
	}
	if p.file != "" && !v.on("output_file_append") {
		if info, err := os.Stat(p.file); err == nil && info.Mode().IsRegular() {
			if err := os.Truncate(p.file, 0); err != nil { // keeps the file's mode
				return nil, usageError(p.file + ": Access denied: " + err.Error())
			}
		}
	}
	return p, nil
}

func indent(v values, o *config.Options) output.Indent {
	if v.given("output_indent") {
		return output.Indent{Set: true, N: v.integer("output_indent", 0)}
	}
	switch x := o.Extra["output_indent"].(type) {
	case int64:
		return output.Indent{Set: true, N: int(x)}
	case int:
		return output.Indent{Set: true, N: x}
	case string:
		return output.Indent{Set: x == "pretty", Pretty: x == "pretty"}
	}
	if x, ok := o.Extra["output_indent"]; ok && x == nil {
		return output.Indent{Set: true, N: -1}
	}
	return output.Indent{}
}

// theme reads a file that maps colour names to codes; nil if that fails.
func (e Env) theme(path string) map[string]string {
	text, err := os.ReadFile(path)
	if err != nil {
		e.logWarning("The named theme " + path + " if not available")
		return nil
	}
	doc, err := yaml11.Load(text)
	colors, ok := doc.(value.Map)
	if err != nil || !ok {
		e.logWarning("Failed to read the color theme " + path)
		return nil
	}
	theme := make(map[string]string, len(colors))
	for _, c := range colors {
		theme[value.Str(c.Key)] = value.Str(c.Value)
	}
	return theme
}

// show prints one document. As in Salt, it is no error that nobody reads it.
func (p *printer) show(r output.Result) error {
	var w io.Writer = p.env.Stdout
	if p.file != "" {
		f, err := os.OpenFile(p.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
		if err != nil {
			return fmt.Errorf("open output file: %w", err)
		}
		defer f.Close()
		w = f
	}
	if err := p.opts.Display(w, r); !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

// words splits a list of texts, or a text at its commas.
func words(v any) []string {
	switch x := v.(type) {
	case string:
		return splitNames(x)
	case bool:
		return []string{value.Str(x)}
	case []any:
		out := make([]string, len(x))
		for i, e := range x {
			out[i] = value.Str(e)
		}
		return out
	}
	return nil
}

// filterWords reads exclude= and terse= from the arguments of a state function, which control
// how its result is printed.
func (p *printer) filterWords(args []any) {
	for _, a := range args {
		m, ok := a.(value.Map)
		if !ok {
			continue
		}
		if v, ok := m.Get("exclude"); ok {
			p.opts.StateExclude = words(v)
		}
		if v, ok := m.Get("terse"); ok {
			p.opts.StateTerse = words(v)
		}
	}
}
