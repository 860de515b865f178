package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"syscall"

	"clustermaster/config"
	"clustermaster/salt/gather"
	"clustermaster/serve/operator"
	"clustermaster/value"
)

// SaltVersion is the release of Salt whose commands these match.
const SaltVersion = "3008.3"

// Daemon is the running master, reached through its local socket. operator.Client implements it.
type Daemon interface {
	gather.Master
	// Targets resolves a target without sending anything.
	Targets(ctx context.Context, tgt any, tgtType, delimiter string) (operator.Targeted, error)
	// Run makes one call of a runner or wheel function. out gets its output while it runs.
	Run(ctx context.Context, r operator.RunRequest,
		out func(kind string, v any)) (operator.RunResult, error)
	// Docs maps the runner functions under a prefix to their documentation.
	Docs(ctx context.Context, prefix string) (value.Map, error)
	// Lists reads all keys. Without texts, their Pub is "".
	Lists(ctx context.Context, texts bool) (operator.KeyLists, error)
	Change(ctx context.Context, k operator.KeyChange) (operator.KeysChanged, error)
	// Fire fires an event on the master's bus. Only root and the master's user may.
	Fire(ctx context.Context, tag string, data value.Map) error
	// Login makes all further calls those of a user of external_auth. user is "" if the
	// credentials are refused.
	Login(ctx context.Context, creds operator.Credentials) (user string, err error)
	// MakeToken makes a token of external_auth. It is "" if the credentials are refused.
	MakeToken(ctx context.Context, creds operator.Credentials) (token string, err error)
	Close() error
}

var _ Daemon = (*operator.Client)(nil)

// Env is everything that a command touches.
type Env struct {
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Getenv   func(string) string
	Terminal bool   // standard output is a terminal
	Build    string // version of this program, for --version

	// Dial connects to the master of a sock_dir; nil means operator.Dial. The error is
	// operator.ErrNoMaster if no master runs.
	Dial func(ctx context.Context, sockDir string) (Daemon, error)
	// Offline reads the last known keys from the disk of a master that does not run; nil
	// if that is not possible.
	Offline func(ctx context.Context, o *config.Options) (operator.KeyLists, error)
	// Load reads the configuration; nil means config.LoadForClient.
	Load func(dir string, getenv func(string) string) (*config.Options, []config.Warning, error)
	// Again runs the program that replaced this one on the disk, and does not return if it can.
	// nil: it is never tried.
	Again func()
	// Versions lists program parts and versions, one a line, for --versions-report. nil prints the
	// version only.
	Versions func() string
}

// OS is the Env of a process.
func OS() Env {
	info, err := os.Stdout.Stat()
	return Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, Again: runAgain,
	}
}

// runAgain runs the program that now has this one's name, with the same arguments. It returns if
// that is still the same program, or none.
func runAgain() {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return
	}
	now, err := os.Stat(path)
	self, failed := os.Stat("/proc/self/exe")
	if err != nil || failed != nil || os.SameFile(now, self) {
		return
	}
	_ = syscall.Exec(path, os.Args, os.Environ()) // the caller says that no master answers
}

func (e Env) dial(ctx context.Context, o *config.Options) (Daemon, error) {
	if e.Dial != nil {
		return e.Dial(ctx, o.SockDir)
	}
	c, err := operator.Dial(ctx, o.SockDir)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (e Env) println(text string)               { fmt.Fprintln(e.Stdout, text) }
func (e Env) errorf(format string, args ...any) { fmt.Fprintf(e.Stderr, format+"\n", args...) }

// logError writes a line as Salt's log handler for the terminal does.
func (e Env) logError(text string)   { fmt.Fprintf(e.Stderr, "[ERROR   ] %s\n", text) }
func (e Env) logWarning(text string) { fmt.Fprintf(e.Stderr, "[WARNING ] %s\n", text) }

// begin parses a command line and answers --help and --version. If done, the
// command has ended with code.
func (e Env) begin(p *parser, args []string) (v values, operands []string, code int, done bool) {
	v, operands, err := p.parse(args)
	if err == nil && v.on("args_stdin") {
		var more []string
		if operands, more, err = e.fromStdin(p, v, operands); err == nil {
			operands = append(operands, more...)
		}
	}
	switch {
	case err != nil:
		return v, nil, p.fail(e.Stderr, err), true
	case v.on("help"):
		p.help(e.Stdout)
		return v, nil, ExitOK, true
	case v.on("version"):
		e.println(p.prog + " " + e.version())
		return v, nil, ExitOK, true
	case v.on("versions_report"):
		e.println("Salt Version:\n          Salt: " + e.version())
		if e.Versions != nil {
			e.println("\n" + e.Versions())
		}
		return v, nil, ExitOK, true
	}
	if err := e.saltfile(p, v); err != nil {
		return v, nil, p.fail(e.Stderr, err), true
	}
	return v, operands, ExitOK, false
}

func (e Env) version() string {
	if e.Build == "" {
		return SaltVersion + " (clustermaster)"
	}
	return SaltVersion + " (clustermaster " + e.Build + ")"
}

// configuration reads the master's configuration. As in Salt, a missing folder gives a
// warning on standard error. It adds the file's values of options that were not given to v.
func (e Env) configuration(p *parser, v values) (*config.Options, int, bool) {
	dir := v.text("config_dir")
	if used := config.Dir(dir, e.Getenv); !isDir(used) {
		e.errorf("WARNING: CONFIG '%s' directory does not exist.", used)
	}
	load := e.Load
	switch {
	case load != nil:
	case p.prog == "salt-cp":
		load = config.LoadForCommand
	default:
		load = config.LoadForClient
	}
	o, _, err := load(dir, e.Getenv) // the daemon logs the warnings
	if err == nil {
		err = p.fromFile(v, o)
	}
	if err != nil {
		e.errorf("%s", err)
		return nil, ExitFailed, false
	}
	return o, ExitOK, true
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// user is the user name of jobs: the process's user, or sudo_NAME for root through sudo.
func (e Env) user() string {
	name := "root"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if sudo := e.Getenv("SUDO_USER"); name == "root" && sudo != "" && sudo != "root" {
		return "sudo_" + sudo
	}
	return name
}

// noMaster prints Salt's text for a master that does not run. It returns false for any other error.
func (e Env) noMaster(err error, o *config.Options) bool {
	if !errors.Is(err, operator.ErrNoMaster) {
		return false
	}
	e.logError("Unable to connect to the salt master publisher at " + o.SockDir)
	return true
}

const masterDown = "The salt master could not be contacted. Is master running?"
