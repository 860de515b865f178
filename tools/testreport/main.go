// Command testreport runs the parts of the test suite one after the other, whatever became of those
// before, and sums up what failed, and what was skipped or left out and why.
//
//	testreport [-allow FILE] NAME=COMMAND...
//
// A part is a shell command. What `go test -json` writes becomes one line per package and the
// output of what failed; other lines pass. A line that begins with "left out: ", also in the log of
// a test, names what this machine lacks.
//
// The exit code is 1 if a test or a part failed. With CI=true it is 1 too if something was skipped
// or left out for a reason that is not a line of FILE.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	allow := flag.String("allow", "",
		"file with the reasons for which CI may skip, one per line; # begins a comment")
	flag.Parse()
	os.Exit(run(os.Stdout, *allow, os.Getenv("CI") == "true", flag.Args()))
}

func run(out io.Writer, allow string, strict bool, parts []string) (code int) {
	var allowed []string
	if strict && allow != "" {
		text, err := os.ReadFile(allow)
		if err != nil {
			fmt.Fprintln(out, "testreport: reasons that CI allows are not read:", err)
			return 2
		}
		allowed = reasons(string(text))
	}
	r := newReport(out)
	for _, p := range parts {
		name, command, ok := strings.Cut(p, "=")
		if !ok {
			fmt.Fprintf(out, "testreport: %q is not NAME=COMMAND\n", p)
			return 2
		}
		r.part(name, exec.Command("/bin/bash", "-c", command))
	}
	if strict {
		r.refuseSkips(allowed)
	}
	return r.sum()
}

// reasons are the lines of a file without comments.
func reasons(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}
