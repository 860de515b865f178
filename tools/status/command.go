package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const usage = `Usage: clustermaster %[1]s [options]

%[2]s

Options:
%[3]s
Exit codes: 0 all is well, 1 %[5]s, 2 no master answers on this machine, 64 the
command line is wrong.

Examples:
%[4]s`

// abouts describe the commands, examples show their use.
var abouts = map[string]string{
	"status":  "Shows the cluster: its masters, what is being moved between them, and what is wrong.",
	"members": "Lists the masters of the cluster.",
	"watch": "Shows the cluster again and again until Ctrl-C; with --until, until all is well or nothing is moved any more.\n" +
		"Where standard output is no terminal it writes a page only when something changed.",
}

var examples = map[string]string{
	"status":  "  clustermaster status\n  clustermaster status --json | jq .health.problems\n",
	"members": "  clustermaster members\n",
	"watch":   "  clustermaster watch\n  clustermaster watch --until healthy --timeout 120\n  clustermaster watch --until settled --json\n",
}

// flags are the options of the command line.
type flags struct {
	dir      string
	json     bool
	interval float64 // seconds
	timeout  float64 // seconds; 0: none
	until    string
}

func parse(name string, args []string) (flags, *pflag.FlagSet, error) {
	var f flags
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVarP(&f.dir, "config-dir", "c", "",
		"folder of the file \"master\" (default /etc/salt)")
	fs.BoolVar(&f.json, "json", false, "write JSON")
	if name == "watch" {
		fs.Float64VarP(&f.interval, "interval", "n", 2, "seconds between two looks, 0.2 to 3600")
		fs.Float64Var(&f.timeout, "timeout", 0, "seconds after which it ends; 0 is never")
		fs.StringVar(&f.until, "until", "",
			"end with exit code 0 as soon as the cluster is `healthy`, or \"settled\": healthy and nothing moved")
	}
	err := fs.Parse(args)
	switch {
	case err != nil:
	case fs.NArg() > 0:
		err = fmt.Errorf("it takes no argument %q", fs.Arg(0))
	case f.until != "" && f.until != "healthy" && f.until != "settled":
		err = fmt.Errorf("--until is %q; use healthy or settled", f.until)
	case name == "watch" && (f.interval < 0.2 || f.interval > 3600):
		err = fmt.Errorf("--interval is %v; it must lie between 0.2 and 3600 seconds", f.interval)
	case f.timeout < 0:
		err = fmt.Errorf("--timeout is %v; it can't be negative", f.timeout)
	}
	return f, fs, err
}

// Command is one of clustermaster status, members and watch.
func Command(ctx context.Context, name string, args []string, stdout, stderr io.Writer) int {
	f, fs, err := parse(name, args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		problems := "there are problems"
		if name == "watch" {
			problems += " or --timeout came first"
		}
		fmt.Fprintf(stdout, usage, name, abouts[name], fs.FlagUsages(), examples[name], problems)
		return exitGood
	case err != nil:
		fmt.Fprintf(stderr, "clustermaster %s: %v\n", name, err)
		return exitUsage
	}
	if name == "watch" {
		return watch(ctx, f, stdout, stderr)
	}
	v, err := look(ctx, os.Getenv, f.dir)
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster %s: %s\n", name, remedy(err, f.dir))
		return v.code(err)
	}
	switch {
	case f.json && name == "members":
		writeJSON(stdout, v.Members)
	case f.json:
		writeJSON(stdout, v)
	case name == "members":
		memberTable(stdout, v)
	default:
		statusPage(stdout, v)
	}
	return v.code(nil)
}

func writeJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // if the pipe is closed, the reader wants no more
}

// watch shows the view repeatedly.
func watch(ctx context.Context, f flags, stdout, stderr io.Writer) int {
	limit := ctx
	if f.timeout > 0 {
		var stop context.CancelFunc
		limit, stop = context.WithTimeout(ctx, time.Duration(f.timeout*float64(time.Second)))
		defer stop()
		// Only this end stops a look. A master that knew the deadline could answer with an error
		// just before it.
		ctx, stop = context.WithCancel(ctx)
		defer context.AfterFunc(limit, stop)()
	}
	tick := time.NewTicker(time.Duration(f.interval * float64(time.Second)))
	defer tick.Stop()
	var last string
	code := exitProblems // until a look has ended
	for {
		v, err := look(ctx, os.Getenv, f.dir)
		if limit.Err() != nil {
			break
		}
		code = v.code(err)
		var page strings.Builder
		switch {
		case err != nil && f.json:
			writeLine(&page, map[string]string{"error": remedy(err, f.dir)})
		case err != nil:
			fmt.Fprintln(&page, remedy(err, f.dir))
		case f.json:
			writeLine(&page, v)
		default:
			statusPage(&page, v)
		}
		var unread error
		if key := v.key() + fmt.Sprint(err); onTerminal(stdout) && !f.json {
			_, unread = fmt.Fprint(stdout,
				"\x1b[H\x1b[2J"+time.Now().Format(time.TimeOnly)+"  "+page.String())
		} else if key != last {
			if last != "" && !f.json {
				fmt.Fprintln(stdout)
			}
			last = key
			_, unread = fmt.Fprint(stdout, page.String())
		}
		if f.until != "" && code == exitGood && (f.until == "healthy" || !v.moving()) {
			return exitGood
		}
		if unread != nil && f.until != "" {
			return max(code, exitProblems)
		}
		if unread != nil {
			return code
		}
		select {
		case <-limit.Done():
		case <-tick.C:
		}
		if limit.Err() != nil {
			break
		}
	}
	if errors.Is(limit.Err(), context.DeadlineExceeded) && f.until != "" {
		fmt.Fprintf(stderr, "clustermaster watch: not %s after %v s\n", f.until, f.timeout)
		return max(code, exitProblems)
	}
	return code
}

func writeLine(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) }

// onTerminal reports whether a page can overwrite the last one.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
