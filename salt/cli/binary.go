package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/pflag"

	"clustermaster/salt/gather"
)

// Command is one command of a Binary.
type Command struct {
	Name, Help string
	Run        func(ctx context.Context, args []string) int
}

// Binary is a program with several commands. A link with the name of a command runs that command.
type Binary struct {
	Name, Version, About string
	Commands             []Command
	Examples             []string
}

// Run runs the command that the program's name or its first argument names, and returns its exit
// code. args includes the program's name.
//
// A write to a closed pipe is an error for the command, and does not end the process in the middle
// of a batch or a migration. So commands that write without end have to look at the error.
func (b Binary) Run(ctx context.Context, args []string, out, errs io.Writer) int {
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)
	if c, ok := b.find(filepath.Base(args[0])); ok {
		return c.Run(ctx, args[1:])
	}
	if len(args) > 1 {
		if c, ok := b.find(args[1]); ok {
			return c.Run(ctx, args[2:])
		}
		switch args[1] {
		case "-h", "--help", "help":
			b.usage(out)
			return 0
		case "--version":
			fmt.Fprintln(out, b.Name+" "+b.Version)
			return 0
		}
		fmt.Fprintf(errs, "%s: unknown command %q\n", b.Name, args[1])
	}
	b.usage(errs)
	return ExitUsage
}

func (b Binary) find(name string) (Command, bool) {
	i := slices.IndexFunc(b.Commands, func(c Command) bool { return c.Name == name })
	if i < 0 {
		return Command{}, false
	}
	return b.Commands[i], true
}

func (b Binary) usage(w io.Writer) {
	fmt.Fprintf(w, "Usage: %s COMMAND [ARGUMENTS]\n\n%s Each salt* command is also a link to this binary.\n\n",
		b.Name, b.About)
	for _, c := range b.Commands {
		fmt.Fprintf(w, "  %-12s %s\n", c.Name, c.Help)
	}
	fmt.Fprint(w, "\nExamples:\n")
	for _, e := range b.Examples {
		fmt.Fprintln(w, "  "+e)
	}
}

// signalled is why a command's context ended: a signal.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return s.String() }

// UntilSignal ends a command's context at SIGINT and SIGTERM. The command then ends in order and
// names the job that continues without it.
func UntilSignal(run func(context.Context, []string) int) func(context.Context, []string) int {
	return func(ctx context.Context, args []string) int {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		defer signal.Stop(signals)
		go func() {
			select {
			case s := <-signals:
				cancel(signalled{s})
			case <-ctx.Done():
			}
		}()
		return run(ctx, args)
	}
}

// interrupted ends a command whose context has ended, and names the job that continues, if there is
// one. As in Salt, it is silent at SIGTERM, and no error unless --hard-crash is given.
func (e Env) interrupted(ctx context.Context, v values, jid string) int {
	crash := v.on("hard_crash")
	switch {
	case errors.Is(context.Cause(ctx), signalled{syscall.SIGTERM}):
		if crash {
			e.errorf("\nExiting with hard crash on Ctrl-c")
		}
	case jid != "":
		e.errorf("\nExiting gracefully on Ctrl-c\nThis job's jid is: %s\n%s", jid,
			gather.LateReturns(jid))
	default:
		e.errorf("\nExiting gracefully on Ctrl-c")
	}
	if crash {
		return ExitFailed
	}
	return ExitOK
}

// OptionsOf describes the options of a set of flags.
func OptionsOf(flags *pflag.FlagSet) []Option {
	var all []Option
	flags.VisitAll(func(f *pflag.Flag) {
		o := Option{Names: "--" + f.Name, Help: f.Usage}
		if f.Shorthand != "" {
			o.Names = "-" + f.Shorthand + " " + o.Names
		}
		if f.Value.Type() != "bool" {
			o.Value = "VALUE"
		}
		all = append(all, o)
	})
	return all
}
