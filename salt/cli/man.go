package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const manualsUsage = `Usage: clustermaster manuals DIR

Writes the manual pages of all commands into the folder DIR, which must exist.

Examples:
  mkdir -p man && clustermaster manuals man && man man/salt-key.1
`

// Manuals is "clustermaster manuals DIR".
func Manuals(args []string, env Env, release string, others ...Program) int {
	switch {
	case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
		fmt.Fprint(env.Stdout, manualsUsage)
		return ExitOK
	case len(args) != 1 || strings.HasPrefix(args[0], "-"):
		fmt.Fprint(env.Stderr, manualsUsage)
		return ExitUsage
	}
	if err := writeManuals(args[0], release, others...); err != nil {
		fmt.Fprintln(env.Stderr, "clustermaster:", err)
		return ExitFailed
	}
	return ExitOK
}

// writeManuals writes a manual page of section 1 into dir for each command and for the other
// programs. release is the release that the pages name.
func writeManuals(dir, release string, others ...Program) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is no folder; make it with mkdir -p", dir)
	}
	for _, p := range completed(others) {
		f, err := os.Create(filepath.Join(dir, p.prog+".1"))
		if err != nil {
			return fmt.Errorf("write manual page: %w", err)
		}
		p.manual(f, release)
		if err := f.Close(); err != nil {
			return fmt.Errorf("write manual page: %w", err)
		}
	}
	return nil
}

// roff escapes a text, so that roff prints it as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

func (p *parser) manual(w io.Writer, release string) {
	fmt.Fprintf(w, ".TH %s 1 \"\" \"%s\" \"Salt\"\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(roff(p.prog)), roff(release), roff(p.prog), roff(brief(p.about)))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n%s\n.SH DESCRIPTION\n%s\n.SH OPTIONS\n", roff(p.prog),
		roff(p.usage), roff(p.about))
	p.manualOptions(w, "")
	for _, g := range p.groups {
		fmt.Fprintf(w, ".SS %s\n%s\n", roff(g[0]), roff(g[1]))
		p.manualOptions(w, g[0])
	}
	if len(p.words) > 0 {
		fmt.Fprintf(w, ".SH COMMANDS\n%s\n", roff(strings.Join(p.words, ", ")))
	}
	fmt.Fprint(w, ".SH EXAMPLES\n")
	for _, e := range p.examples {
		fmt.Fprintf(w, ".PP\n.nf\n%s\n.fi\n", roff(e))
	}
	fmt.Fprint(w,
		".SH FILES\n.TP\n.I /etc/salt/master\nThe master's configuration; files of /etc/salt/master.d are read after it.\n")
}

func (p *parser) manualOptions(w io.Writer, group string) {
	for _, o := range p.options {
		if o.group == group {
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(o.spelling()), roff(o.help))
		}
	}
}

// brief is the first sentence of a text, without its full stop.
func brief(text string) string {
	first, _, _ := strings.Cut(text, ". ")
	return strings.TrimSuffix(first, ".")
}
