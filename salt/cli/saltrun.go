package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"clustermaster/config"
	"clustermaster/salt/output"
	"clustermaster/serve/operator"
	"clustermaster/value"
	"clustermaster/wire"
)

func saltRunParser() *parser {
	p := newParser("salt-run", "[options] <function> [arguments]",
		"Run a runner function on this master. Without a function, print the documentation of all functions.",
		"salt-run manage.status",
		"salt-run jobs.lookup_jid 20130916125524463507",
		"salt-run cluster.members --out=json",
		"salt-run state.event 'salt/job/*' pretty=True",
		"salt-run -d jobs")
	p.addTimeout("Accepted for scripts; each function has its own timeout.")
	p.addArguments()
	p.add("",
		option{names: "--jid", dest: "jid", kind: textValue,
			help: "Use this job id instead of a new one."},
		option{names: "-d --doc --documentation", dest: "doc",
			help: "Print the documentation of a function, a family or all functions."},
		option{names: "--async", dest: "async", fromFile: true, help: "Start the function and exit."},
		option{names: "--dry-run", dest: "dry_run",
			help: "Print what the function would do and change nothing. Only some functions can."},
		option{names: "--skip-grains", dest: "skip_grains",
			help: "Accepted for scripts; changes nothing."},
		option{names: "--enable-profiling", dest: "profiling_enabled",
			help: "Accepted for scripts; no profiles are made."},
		option{names: "--profiling-path", dest: "profiling_path", kind: textValue,
			help: "Accepted for scripts; no profiles are made."},
	)
	p.addEauth("-a ")
	p.addOutput()
	p.add(groupOutput, option{names: "--quiet", dest: "quiet", fromFile: true,
		help: "Print no result and no progress."})
	p.addLogging("-l --log-level")
	return p
}

// SaltRun is the command salt-run.
func SaltRun(ctx context.Context, args []string, env Env) int {
	p := saltRunParser()
	v, operands, code, done := env.begin(p, args)
	if done {
		return code
	}
	if v.on("doc") && len(operands) > 1 {
		return p.fail(env.Stderr,
			usageError("You can only get documentation for one method at one time"))
	}
	if jid := v.text("jid"); v.given("jid") && !wire.IsJID(jid) {
		return p.fail(env.Stderr, usageError("'"+jid+"' is not a valid JID"))
	}
	opts, code, ok := env.configuration(p, v)
	if !ok {
		return code
	}
	show, err := env.printer(v, opts)
	if err != nil {
		return p.fail(env.Stderr, err)
	}
	defer show.close()
	run := &runnerRun{env: env, opts: opts, v: v, print: show}
	if len(operands) > 0 {
		run.fun, operands = operands[0], operands[1:]
	}
	daemon, err := env.dial(ctx, opts)
	if err != nil {
		return run.down(err)
	}
	defer daemon.Close()
	if v.on("doc") || run.fun == "" {
		return run.docs(ctx, daemon)
	}
	var notBelieved *operator.RefusedError
	switch err := env.login(ctx, v, opts, daemon, false); {
	case errors.Is(err, errNoLogin):
		env.logError(err.Error())
		return ExitOK
	case errors.As(err, &notBelieved):
		return run.refused(notBelieved.Text)
	case err != nil:
		return run.down(err)
	}
	return run.call(ctx, daemon, operands)
}

// dryRuns maps each function with a dry run to the parameter that asks for it.
var dryRuns = map[string]string{
	"cache.migrate": "dry_run", "cluster.demote": "test", "cluster.drain": "test",
	"cluster.remove": "test", "cluster.restore": "test", "cluster.rotate_keys": "test",
	"cluster.rotate_secret": "test", "cluster.sync_roots": "test",
	"cluster.transfer_leader": "test", "cluster.upgrade": "test",
	"state.orch": "test", "state.orchestrate": "test", "state.sls": "test",
}

// runnerRun is one run of salt-run.
type runnerRun struct {
	env   Env
	opts  *config.Options
	v     values
	print *printer
	fun   string
	shown bool // the function already printed its result
	meter bool // a progress meter is on the terminal's current line
	// ends a stream of events that nobody reads any more
	unread context.CancelFunc
}

func (r *runnerRun) down(err error) int {
	text := err.Error()
	if r.env.noMaster(err, r.opts) {
		text = masterDown
	}
	if r.fun != "" {
		text = "Exception occurred in runner " + r.fun + ": " + text
	}
	if !r.v.on("quiet") {
		r.env.println(text)
	}
	return ExitFailed
}

// refused prints a refusal of external_auth and exits with 0, as Salt does.
func (r *runnerRun) refused(text string) int {
	if err := r.print.show(output.Result{Value: text}); err != nil {
		r.env.errorf("ERROR: %s", err)
		return ExitFailed
	}
	return ExitOK
}

func (r *runnerRun) docs(ctx context.Context, d Daemon) int {
	docs, err := d.Docs(ctx, r.fun)
	if err != nil {
		return r.down(err)
	}
	sorted, _ := value.Sorted(docs)
	for _, p := range sorted {
		r.env.println(value.Str(p.Key) + ":\n" + value.Str(p.Value))
	}
	return ExitOK
}

func (r *runnerRun) call(ctx context.Context, d Daemon, words []string) int {
	args, kwargs := parseWords(words, r.v.text("no_parse"))
	if r.v.on("dry_run") {
		name, ok := dryRuns[r.fun]
		if !ok {
			r.env.errorf("ERROR: %s has no dry run; nothing was called. These functions have one: %s", r.fun,
				strings.Join(slices.Sorted(maps.Keys(dryRuns)), " "))
			return ExitFailed
		}
		kwargs = kwargs.Set(name, true)
	}
	kwargs, err := r.env.askPassphrase(r.fun, args, kwargs)
	if err == nil {
		kwargs, err = r.env.askExport(r.fun, args, kwargs)
	}
	if err != nil {
		r.env.errorf("ERROR: %s", err)
		return ExitFailed
	}
	req := operator.RunRequest{Fun: r.fun, Args: args, Kwargs: kwargs, JID: r.v.text("jid"),
		User: r.env.user(), Async: r.v.on("async")}
	if r.opts.ShowJID && !req.Async {
		if req.JID == "" {
			if req.JID, err = d.NewJID(ctx); err != nil {
				return r.down(err)
			}
		}
		r.env.println("jid: " + req.JID)
	}
	read, unread := context.WithCancel(ctx)
	defer unread()
	r.unread = unread
	res, err := d.Run(read, req, r.meanwhile)
	var notAllowed *operator.RefusedError
	switch {
	case read.Err() != nil && ctx.Err() == nil:
		return ExitOK
	case errors.As(err, &notAllowed):
		return r.refused(notAllowed.Text)
	case ctx.Err() != nil:
		return r.env.interrupted(ctx, r.v, "")
	case errors.Is(err, operator.ErrNoMaster):
		return r.down(err)
	case err != nil:
		r.env.println("Exception occurred in runner " + r.fun + ": " + err.Error())
		return ExitFailed
	case req.Async:
		if level := r.level(); level != "error" && level != "critical" && level != "quiet" {
			r.env.logWarning("Running in asynchronous mode. The result can be read from the events of the master or from the job cache. This execution is running under tag salt/run/" + res.JID)
		}
		return ExitOK
	}
	if !r.v.on("quiet") && !r.shown {
		if res.NotRun && res.Retcode == 0 {
			res.Return = r.help(ctx, d, res.Return)
		}
		if err := r.print.show(result(res)); err != nil {
			r.env.errorf("ERROR: %s", err)
			return ExitFailed
		}
	}
	return res.Retcode
}

// help is what Salt prints of a call whose function or keywords are unknown: the documentation of
// all functions whose names begin so. If there are none it is reason.
func (r *runnerRun) help(ctx context.Context, d Daemon, reason any) any {
	docs, err := d.Docs(ctx, r.fun+"*")
	if err != nil || len(docs) == 0 {
		return reason
	}
	return docs
}

// level is the log level for the terminal.
func (r *runnerRun) level() string {
	if r.v.given("log_level") {
		return r.v.text("log_level")
	}
	return r.opts.LogLevel
}

// meanwhile prints the output of a function that still runs.
func (r *runnerRun) meanwhile(kind string, v any) {
	if r.meter {
		fmt.Fprint(r.env.Stdout, "\r\x1b[K")
		r.meter = false
	}
	switch kind {
	case "meter":
		if line := value.Str(v); r.env.Terminal && !r.v.on("quiet") && line != "" {
			fmt.Fprint(r.env.Stdout, line)
			r.meter = true
		}
	case "show":
		if r.v.text("output") == "" && !r.v.on("quiet") {
			fmt.Fprint(r.env.Stdout, value.Str(v))
			r.shown = true
		}
	case "print":
		_, err := fmt.Fprint(r.env.Stdout, value.Str(v))
		if errors.Is(err, syscall.EPIPE) && r.fun == "state.event" {
			r.unread()
		}
	case "warning":
		r.env.logWarning(strings.TrimRight(value.Str(v), "\n"))
	case "error":
		r.env.logError(value.Str(v))
	case "progress":
		if r.v.on("quiet") {
			return
		}
		doc := value.Map{{Key: "suffix", Value: "progress"}, {Key: "event", Value: v}}
		event, _ := v.(value.Map)
		if err := r.print.show(output.Result{Value: doc,
			Outputter: event.String("outputter")}); err != nil {
			r.env.errorf("ERROR: %s", err)
		}
	}
}

// result is the printed part of a result: the data alone if the function only added an outputter.
func result(res operator.RunResult) output.Result {
	if res.NotRun {
		return output.Result{Value: res.Return, Outputter: "nested"}
	}
	out := output.Result{Value: res.Return, Outputter: res.Outputter}
	if m, ok := res.Return.(value.Map); ok && len(m) == 2 {
		data, hasData := m.Get("data")
		if name := m.String("outputter"); hasData && name != "" {
			out = output.Result{Value: data, Outputter: name}
		}
	}
	return out
}
