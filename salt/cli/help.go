package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	helpWidth  = 78
	helpColumn = 24
)

// help prints a command's options and examples in the layout of optparse.
func (p *parser) help(w io.Writer) {
	fmt.Fprintf(w, "Usage: %s %s\n\n%s\n\nOptions:\n", p.prog, p.usage,
		strings.Join(wrap(p.about, helpWidth), "\n"))
	p.helpOptions(w, "", 2)
	for _, g := range p.groups {
		fmt.Fprintf(w, "\n  %s:\n", g[0])
		if g[1] != "" {
			fmt.Fprintf(w, "    %s\n\n", g[1])
		}
		p.helpOptions(w, g[0], 4)
	}
	fmt.Fprintf(w, "\nExamples:\n")
	for _, e := range p.examples {
		fmt.Fprintf(w, "  %s\n", e)
	}
}

func (p *parser) helpOptions(w io.Writer, group string, indent int) {
	for _, o := range p.options {
		if o.group != group {
			continue
		}
		left := strings.Repeat(" ", indent) + o.spelling()
		lines := wrap(o.help, helpWidth-helpColumn)
		if utf8.RuneCountInString(left) > helpColumn-2 {
			fmt.Fprintln(w, left)
			left = ""
		}
		for _, line := range lines {
			fmt.Fprintf(w, "%-*s%s\n", helpColumn, left, line)
			left = ""
		}
	}
}

// spelling lists the names of an option with its value: -t TIMEOUT, --timeout=TIMEOUT.
func (o *option) spelling() string {
	value := o.value
	if value == "" {
		value = strings.ToUpper(o.dest)
	}
	var parts []string
	for _, n := range strings.Fields(o.names) {
		switch {
		case o.kind == flagOn || o.kind == flagOff:
		case strings.HasPrefix(n, "--"):
			n += "=" + value
		default:
			n += " " + value
		}
		parts = append(parts, n)
	}
	return strings.Join(parts, ", ")
}

// wrap breaks a text at blanks.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
