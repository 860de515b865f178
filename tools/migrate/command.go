package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

const usage = `Usage: clustermaster migrate plan|apply|rollback [options]

plan      says what becomes of this box's Salt master: each option and module, keys, ports, disk. Changes nothing.
apply     replaces Salt's master by this one, step by step; if a step fails, Salt's master is restored.
rollback  gives the box back to Salt's master, with the keys that were accepted meanwhile.

Options:
%s
Exit codes: 0 done, or everything works; 1 refused or failed, and Salt's master is as before; 3 (plan) it can be
applied, and something is not as before; 64 the command line is wrong.

Examples:
  clustermaster migrate plan
  clustermaster migrate plan --other /mnt/pki-of-master2 --json
  clustermaster migrate apply \
    --start 'apt-get install -y ./clustermaster_0.2.0_amd64.deb && systemctl start salt-master' \
    --undo 'apt-get install -y salt-master=3008.3 && systemctl start salt-master'
  clustermaster migrate rollback \
    --start 'apt-get install -y salt-master=3008.3 && systemctl start salt-master'
`

// flags are the options of the command line.
type flags struct {
	dir, salt, start, stop, undo, extra string
	others                              []string
	json, found                         bool
	wait                                float64 // seconds
}

// Command is clustermaster migrate. functions are the names that templates may call on this master.
func Command(ctx context.Context, args []string, functions []string, stdout, stderr io.Writer) int {
	var f flags
	set := pflag.NewFlagSet("migrate", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVarP(&f.dir, "config-dir", "c", "",
		"folder of the file \"master\" (default /etc/salt)")
	set.StringArrayVar(&f.others, "other", nil,
		"copy of the pki folder of another master, to compare keys with; may be given again")
	set.StringVar(&f.salt, "salt-master", "salt-master", "Salt's program, asked for its release")
	set.BoolVar(&f.json, "json", false, "plan: write JSON")
	set.StringVar(&f.stop, "stop", "systemctl stop salt-master",
		"shell command that stops the master that runs")
	set.StringVar(&f.start, "start", "systemctl start salt-master",
		"shell command that starts the other master")
	set.StringVar(&f.undo, "undo", "systemctl start salt-master",
		"apply: shell command that starts Salt's master again if a step fails; needed with --start or --stop, which may have replaced the program")
	set.StringVar(&f.extra, "options", "",
		"file of options that apply adds in master.d, such as cluster_id, cluster_peers and cluster_secret; plan reads it, too")
	set.BoolVar(&f.found, "found", false,
		"apply: this master founds the cluster of cluster_peers, and does not wait for masters that still are Salt's")
	set.Float64Var(&f.wait, "wait", 120, "seconds that the started master may take; each command may take five times as long")
	err := set.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, usage, set.FlagUsages())
		return exitGood
	case err == nil && (set.NArg() != 1 ||
		!strings.Contains(" plan apply rollback ", " "+set.Arg(0)+" ")):
		err = errors.New("give plan, apply or rollback; see --help")
	case err == nil && set.Arg(0) == "apply" && !set.Changed("undo") &&
		(set.Changed("start") || set.Changed("stop")):
		err = errors.New("give --undo too: the unit may start this master once --start or --stop " +
			"has replaced Salt's; for example --undo 'apt-get install -y salt-master=3008.3 && " +
			"systemctl start salt-master'")
	}
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster migrate: %v\n", err)
		return exitUsage
	}
	if set.Arg(0) == "plan" {
		return plan(ctx, f, functions, stdout, stderr)
	}
	m := &migration{flags: f, functions: functions, out: stdout}
	if err := m.run(ctx, set.Arg(0)); err != nil {
		fmt.Fprintf(stderr, "clustermaster migrate %s: %v\n", set.Arg(0), err)
		return exitBlocked
	}
	return exitGood
}

// run goes on if nobody reads what it says any more. When its terminal goes, apply puts all back,
// as at SIGTERM, and rollback goes on to its end. SIGHUP stays ignored below nohup.
func (m *migration) run(ctx context.Context, name string) error {
	lost := make(chan os.Signal, 1)
	signal.Notify(lost, syscall.SIGPIPE)
	defer signal.Stop(lost)
	hangUp := !signal.Ignored(syscall.SIGHUP)
	switch {
	case name == "rollback" && hangUp:
		signal.Notify(lost, syscall.SIGHUP)
	case hangUp:
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	if name == "rollback" {
		return m.rollback(ctx)
	}
	return m.apply(ctx)
}

func plan(ctx context.Context, f flags, functions []string, stdout, stderr io.Writer) int {
	p, err := look(ctx, f, functions, os.Getenv)
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster migrate plan: %v\n", err)
		return exitBlocked
	}
	if !f.json {
		p.print(stdout)
		return p.code()
	}
	enc := json.NewEncoder(stdout)
	enc.SetIndent("", "  ")
	_ = enc.Encode(struct {
		*Plan
		Blockers []string `json:"blockers"`
	}{p, append([]string{}, p.blockers()...)})
	return p.code()
}
