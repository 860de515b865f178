package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"clustermaster/config"
	"clustermaster/salt/gather"
	"clustermaster/salt/output"
	"clustermaster/salt/target"
	"clustermaster/serve/operator"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

func saltParser() *parser {
	p := newParser("salt", "[options] '<target>' <function> [arguments]",
		"Run functions on many minions at once and print their returns.",
		"salt '*' test.ping",
		"salt -L 'web1,web2' cmd.run 'uptime' --out=txt",
		"salt -E 'db[0-9]+' pkg.install nginx refresh=True -t 60",
		"salt -C 'G@os:Debian and not web*' test.version --static --out=json",
		"salt '*' test.ping,test.arg , hello")
	p.addTimeout("Seconds to wait for returns before asking the minions whether they still run the job. Default: 5.")
	p.addArguments()
	p.add("",
		option{names: "--module-executors", dest: "module_executors", fromFile: true, kind: textValue,
			value: "EXECUTOR_LIST", help: "Executors that the minions use instead of their own."},
		option{names: "--executor-opts", dest: "executor_opts", fromFile: true, kind: textValue,
			help: "Options of the executors."},
		option{names: "-s --static", dest: "static", fromFile: true,
			help: "Wait for all returns and print them as one document."},
		option{names: "-p --progress", dest: "progress", fromFile: true,
			help: "Accepted for scripts; returns are always printed as they arrive."},
		option{names: "--failhard", dest: "failhard", fromFile: true,
			help: "Stop a batch at the first failed return."},
		option{names: "--async", dest: "async", fromFile: true,
			help: "Send the job, print its id and exit."},
		option{names: "--subset", dest: "subset", fromFile: true, kind: intValue,
			help: "Run on that many random minions of the target that have the function."},
		option{names: "-v --verbose", dest: "verbose", fromFile: true,
			help: "Print the job's id first, and ids in the summary."},
		option{names: "--hide-timeout", dest: "show_timeout", kind: flagOff,
			help: "Accepted for scripts; minions that did not return are still shown, as in Salt 3008."},
		option{names: "--show-jid", dest: "show_jid", help: "Print the job's id first."},
		option{names: "-b --batch --batch-size", dest: "batch", fromFile: true, kind: textValue,
			help: "Run on that many minions, or percent of them, at a time."},
		option{names: "--batch-wait", dest: "batch_wait", fromFile: true, kind: floatValue,
			help: "Seconds after a return before the next minion of a batch begins."},
		option{names: "--batch-safe-limit", dest: "batch_safe_limit", fromFile: true, kind: intValue,
			help: "Run as a batch if at least that many minions match."},
		option{names: "--batch-safe-size", dest: "batch_safe_size", fromFile: true, kind: textValue,
			help: "Size of such a batch. Default: 8."},
		option{names: "--return", dest: "return", fromFile: true, kind: textValue, value: "RETURNER",
			help: "Also send the results to these returners of the minions, separated by commas."},
		option{names: "--return_config", dest: "return_config", fromFile: true, kind: textValue,
			value: "RETURNER_CONF", help: "Alternative configuration of the returner."},
		option{names: "--return_kwargs", dest: "return_kwargs", fromFile: true, kind: textValue,
			value: "RETURNER_KWARGS", help: "Options of the returner."},
		option{names: "-d --doc --documentation", dest: "doc",
			help: "Print the documentation of functions; the target may be left out."},
		option{names: "--args-separator", dest: "args_separator", kind: textValue,
			help: "Separator between the arguments of several functions. Default: ','."},
		option{names: "--summary", dest: "cli_summary", help: "Print counts after the returns."},
		option{names: "--metadata", dest: "metadata", fromFile: true, kind: textValue,
			help: "A map stored with the job; jobs.list_jobs can search it."},
		option{names: "--start-event", dest: "start_event", fromFile: true,
			help: "Have each minion fire an event before it begins (minions of 3008)."},
		option{names: "--output-diff", dest: "state_output_diff",
			help: "Hide states that changed nothing."},
		option{names: "--config-dump", dest: "config_dump",
			help: "Print all options, with their defaults, as YAML and exit."},
		option{names: "--preview-target", dest: "preview_target",
			help: "List the minions of the target; send nothing."},
	)
	p.addTargets(true)
	p.addEauth("-a ")
	p.addOutput()
	p.addLogging("-l --log-level")
	return p
}

// saltRun is one run of salt.
type saltRun struct {
	env    Env
	opts   *config.Options
	v      values
	daemon Daemon
	print  *printer
	job    gather.Publish
	wait   gather.Options
}

// Salt is the command salt.
func Salt(ctx context.Context, args []string, env Env) int {
	p := saltParser()
	v, operands, code, done := env.begin(p, args)
	if done {
		return code
	}
	kind, err := p.targetKind(v)
	if err != nil {
		return p.fail(env.Stderr, err)
	}
	opts, code, ok := env.configuration(p, v)
	if !ok {
		return code
	}
	if v.on("config_dump") {
		fmt.Fprint(env.Stdout, string(yaml11.Dump(config.Plain(opts.Values()))))
		return ExitOK
	}
	if len(operands) <= 1 && !v.on("doc") && !v.on("preview_target") {
		p.help(env.Stdout)
	}
	run := &saltRun{env: env, opts: opts, v: v}
	if code, err := run.read(operands, kind); err != nil {
		var wrong usageError
		if errors.As(err, &wrong) {
			return p.fail(env.Stderr, err)
		}
		env.errorf("%s", err)
		return code
	}
	if run.print, err = env.printer(v, opts); err != nil {
		return p.fail(env.Stderr, err)
	}
	defer run.print.close()
	run.print.filterWords(run.job.Arg)
	if run.daemon, err = run.reach(ctx); err != nil {
		return run.down(ctx, err)
	}
	defer run.daemon.Close()
	return run.start(ctx)
}

// Bounds of waiting while clustermaster migrate replaces the master.
const (
	maxMoving  = time.Minute
	lookMoving = 100 * time.Millisecond
)

// reach connects to the master. While clustermaster migrate replaces the master, reach waits, up to
// maxMoving, so that the order goes to the new one.
func (r *saltRun) reach(ctx context.Context) (Daemon, error) {
	if !operator.Moving(r.opts.SockDir) {
		return r.env.dial(ctx, r.opts)
	}
	r.env.logWarning("clustermaster migrate is replacing the master; this command waits for it")
	tick := time.NewTicker(lookMoving)
	defer tick.Stop()
	for end := time.Now().Add(maxMoving); time.Now().Before(end) &&
		operator.Moving(r.opts.SockDir); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	d, err := r.env.dial(ctx, r.opts)
	if errors.Is(err, operator.ErrNoMaster) && r.env.Again != nil && !r.v.on("args_stdin") {
		r.env.Again() // Salt's own command is installed now
	}
	return d, err
}

// down ends a run that can't reach the master. Salt exits with 0 then.
func (r *saltRun) down(ctx context.Context, err error) int {
	if ctx.Err() != nil {
		return r.env.interrupted(ctx, r.v, "")
	}
	if r.env.noMaster(err, r.opts) {
		return r.shown(masterDown)
	}
	r.env.errorf("ERROR: %s", err)
	return ExitFailed
}

// read fills the job from operands and options. A wrong command line gives a usageError; other
// errors come with an exit code.
func (r *saltRun) read(operands []string, kind string) (int, error) {
	v := r.v
	if v.on("preview_target") {
		operands = append(operands, "not_a_valid_command")
	}
	if v.on("doc") {
		if len(operands) == 0 {
			operands = []string{"*"}
		}
		if len(operands) < 2 {
			operands = append(operands, "sys.doc")
		}
		if operands[1] != "sys.doc" {
			operands = append([]string{operands[0], "sys.doc"}, operands[1:]...)
		}
		if len(operands) > 3 {
			return ExitUsage,
				usageError("You can only get documentation for one method at one time.")
		}
	}
	switch {
	case len(operands) == 0:
		return ExitIncomplete, errors.New("\nCannot execute command without defining a target.\n")
	case len(operands) == 1:
		return ExitIncomplete, errors.New("\nIncomplete options passed.\n")
	}
	r.job.Tgt, r.job.TgtType, r.job.User = operands[0], kind, r.env.user()
	if kind == "list" {
		r.job.Tgt = listTarget(operands[0])
	}
	if strings.Contains(operands[1], ",") {
		funs, groups, err := compound(operands[1], operands[2:], v.text("args_separator"))
		if err != nil {
			return ExitIncomplete, err
		}
		r.job.Fun = funs
		for _, g := range groups {
			r.job.Arg = append(r.job.Arg, parseInput(g, v.text("no_parse")))
		}
	} else {
		r.job.Fun, r.job.Arg = operands[1], parseInput(operands[2:], v.text("no_parse"))
	}
	r.waits()
	r.job.Ret = strings.Join(words(v.set["return"]), ",")
	r.job.Kwargs = r.kwargs()
	return ExitOK, nil
}

// waits sets how long the run waits for returns.
func (r *saltRun) waits() {
	r.wait = gather.Options{Timeout: r.opts.Timeout, GatherJobTimeout: r.opts.GatherJobTimeout,
		SyndicWait: r.opts.WaitForSyndics()}
	if t := r.v.integer("timeout", 0); t > 0 {
		r.wait.Timeout = time.Duration(t) * time.Second
	}
	r.job.Patience = r.wait.Timeout
	if r.wait.SyndicWait > 0 { // also without gathering, --async
		r.job.Timeout = r.wait.Timeout
	}
}

// kwargs are the fields that are sent beside the job.
func (r *saltRun) kwargs() value.Map {
	v := r.v
	delimiter := ":"
	if v.given("delimiter") {
		delimiter = v.text("delimiter")
	}
	kw := value.Map{
		{Key: "show_timeout", Value: !v.given("show_timeout")},
		{Key: "show_jid", Value: v.on("show_jid")}, {Key: "delimiter", Value: delimiter},
	}
	if c := v.text("return_config"); c != "" {
		kw = append(kw, value.Pair{Key: "ret_config", Value: c})
	}
	for _, o := range []struct{ dest, key string }{
		{"return_kwargs", "ret_kwargs"}, {"module_executors", "module_executors"},
		{"executor_opts", "executor_opts"}, {"metadata", "metadata"},
	} {
		given := v.set[o.dest]
		if text, ok := given.(string); ok {
			given = yamlArg(text)
		}
		if value.Truth(v.set[o.dest]) {
			kw = append(kw, value.Pair{Key: o.key, Value: given})
		}
	}
	if v.on("start_event") {
		kw = append(kw, value.Pair{Key: "start_event", Value: true})
	}
	return kw
}

// listTarget splits the ids of -L at commas and white space.
func listTarget(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || unicode.IsSpace(c) })
}

// compound splits several functions and their arguments: at stand-alone separators if their number
// fits, otherwise at every separator.
func compound(funs string, args []string, separator string) (names []string, groups [][]string,
	err error) {
	if separator == "" {
		separator = ","
	}
	names = strings.Split(funs, ",")
	alone := 0
	for _, a := range args {
		if a == separator {
			alone++
		}
	}
	groups = [][]string{{}}
	last := func(word string) { groups[len(groups)-1] = append(groups[len(groups)-1], word) }
	for _, a := range args {
		switch {
		case alone == len(names)-1 && a == separator:
			groups = append(groups, []string{})
		case alone == len(names)-1 || !strings.Contains(a, separator):
			last(a)
		default:
			for i, part := range strings.Split(a, separator) {
				if i > 0 {
					groups = append(groups, []string{})
				}
				if part != "" {
					last(part)
				}
			}
		}
	}
	switch {
	case len(names) > len(groups):
		return nil, nil,
			errors.New("Cannot execute compound command without defining all arguments.") // Salt's text
	case len(names) < len(groups):
		return nil, nil,
			errors.New("Cannot execute compound command with more arguments than commands.") // Salt's text
	}
	return names, groups, nil
}

// start runs the job in the mode that the options choose.
func (r *saltRun) start(ctx context.Context) int {
	v := r.v
	switch err := r.env.login(ctx, v, r.opts, r.daemon, true); {
	case errors.Is(err, errNoLogin):
		r.env.errorf("ERROR: %s", err)
		return ExitNoReturn
	case errors.As(err, new(*operator.RefusedError)):
		return r.unsent(notAuthenticated)
	case err != nil:
		return r.down(ctx, err)
	}
	if err := r.writeOut(); err != nil {
		return r.nogroup(err)
	}
	limited := false // batch_safe_limit makes the job a batch
	if !v.on("static") && !v.given("batch") && !v.on("preview_target") &&
		v.integer("batch_safe_limit", 0) > 1 {
		minions, err := r.targets(ctx)
		if err != nil {
			return r.down(ctx, err)
		}
		if len(minions) >= v.integer("batch_safe_limit", 0) {
			r.env.println("\nNOTICE: Too many minions targeted, switching to batch execution.")
			size := v.text("batch_safe_size")
			if size == "" {
				size = "8"
			}
			v.set["batch"], limited = size, true
		}
	}
	switch {
	case v.on("static"):
		return r.static(ctx)
	case limited && v.on("async"):
		r.env.errorf("ERROR: batch_safe_limit makes this job a batch, and a batch with --async " +
			"needs a batch manager, which this master does not have; leave --async out, or add " +
			"--batch-safe-limit=0")
		return ExitNoReturn
	case v.text("batch") != "" && v.on("async"):
		r.env.errorf("ERROR: --batch with --async needs a batch manager, which this master does " +
			"not have; leave one of them out")
		return ExitNoReturn
	case v.text("batch") != "":
		return r.batch(ctx)
	case v.on("preview_target"):
		return r.preview(ctx)
	case v.on("async"):
		return r.async(ctx)
	case v.integer("subset", 0) > 0:
		return r.subset(ctx)
	case r.job.Fun == "sys.doc":
		return r.docs(ctx)
	}
	return r.gather(ctx)
}

// unsent ends a run whose order can't be sent, because the master refused its credentials or
// because its target names an unknown nodegroup, in the same way as a refused order.
func (r *saltRun) unsent(why string) int {
	p := gather.Published{Error: why}
	switch {
	case r.v.on("static"), r.v.text("batch") != "":
		return r.noBatch(p.Error)
	case r.v.on("async"):
		r.sent(p)
		return ExitFailed
	case r.job.Fun == "sys.doc":
		r.env.errorf("%s", why)
		return ExitNoReturn
	}
	r.sent(p)
	return ExitOK // Salt's exit code
}

// nogroup ends a run whose target names an unknown nodegroup. A preview shows no minions then.
func (r *saltRun) nogroup(err error) int {
	if r.v.on("preview_target") && !r.v.on("static") && r.v.text("batch") == "" {
		return r.document(nil, output.Result{Value: []string(nil)})
	}
	return r.unsent(err.Error())
}

// groups are the nodegroups of the command's configuration.
type groups value.Map

func (g groups) Nodegroup(name string) (any, bool) { return value.Map(g).Get(name) }

// writeOut writes the nodegroups of the job's target out. As in Salt, those of the command's own
// configuration count, which is read at each call. The error is Salt's text.
func (r *saltRun) writeOut() error {
	kind, tgt, err := target.ForMaster(r.job.TgtType, r.job.Tgt, groups(r.opts.Nodegroups))
	if err != nil {
		return fmt.Errorf("%w in %s", err, r.opts.ConfFile)
	}
	r.job.TgtType, r.job.Tgt = kind, tgt
	return nil
}

func (r *saltRun) targets(ctx context.Context) ([]string, error) {
	delimiter := r.job.Kwargs.String("delimiter")
	found, err := r.daemon.Targets(ctx, r.job.Tgt, r.job.TgtType, delimiter)
	r.covered(found.Incomplete)
	return found.Minions, err
}

// covered warns if the target was resolved without the data of all minions.
func (r *saltRun) covered(incomplete string) {
	if incomplete != "" {
		r.env.logWarning(incomplete +
			"; minions whose grains or pillar are kept by masters that can't be reached are not targeted")
	}
}

func (r *saltRun) preview(ctx context.Context) int {
	minions, err := r.targets(ctx)
	if err != nil {
		return r.down(ctx, err)
	}
	return r.document(minions, output.Result{Value: minions})
}

// document prints the only document of a run. An empty one is an error.
func (r *saltRun) document(ids []string, res output.Result) int {
	if err := r.print.show(res); err != nil {
		r.env.errorf("ERROR: %s", err)
		return ExitFailed
	}
	if len(ids) == 0 {
		r.env.errorf("ERROR: No return received")
		return ExitNoReturn
	}
	return ExitOK
}

func (r *saltRun) async(ctx context.Context) int {
	published, err := r.daemon.Publish(ctx, r.job)
	if err != nil {
		return r.down(ctx, err)
	}
	jid := published.JID
	if !r.sent(published) {
		if unwanted(published) {
			return ExitFailed
		}
		jid = "0"
	}
	r.env.println("Executed command with job ID: " + jid)
	return ExitOK
}

const noMatch = "No minions matched the target. No command was sent, no jid was assigned."

// unresolved begins the master's error for a target without minions. Salt's command
// prints its own text instead.
const unresolved = "Master could not resolve minions"

// unwanted reports whether the master refused a job: not authorized,
// unknown nodegroup and the like.
func unwanted(p gather.Published) bool {
	return p.Error != "" && !strings.HasPrefix(p.Error, unresolved)
}

// reason is the master's error for a refused job; "" if the job was accepted.
func reason(p gather.Published) string {
	if unwanted(p) {
		return p.Error
	}
	return ""
}

// sent reports whether a job was sent, and prints the reason if not.
func (r *saltRun) sent(p gather.Published) bool {
	r.covered(p.Incomplete)
	switch {
	case unwanted(p):
		if err := r.print.show(output.Result{Value: p.Error, Retcode: 1}); err != nil {
			r.env.errorf("ERROR: %s", err)
		}
		return false
	case len(p.Minions) == 0 && r.wait.SyndicWait == 0:
		r.env.println(noMatch)
		return false
	}
	return true
}

// subset finds out which minions have the function and runs it on some of them.
func (r *saltRun) subset(ctx context.Context) int {
	fun, _ := r.job.Fun.(string)
	having, summary, err := gather.Having(ctx, r.daemon, r.job, r.wait, fun)
	if err != nil {
		return r.stopped(ctx, summary.JID, err)
	}
	r.covered(summary.Incomplete)
	rand.Shuffle(len(having), func(i, j int) { having[i], having[j] = having[j], having[i] })
	r.job.Tgt, r.job.TgtType = having[:min(len(having), r.v.integer("subset", 0))], "list"
	return r.gather(ctx)
}

// stopped ends a run that failed or was interrupted before all minions returned.
func (r *saltRun) stopped(ctx context.Context, jid string, err error) int {
	if ctx.Err() != nil {
		return r.env.interrupted(ctx, r.v, jid)
	}
	if errors.Is(err, operator.ErrNoMaster) {
		return r.down(ctx, err)
	}
	r.env.errorf("ERROR: %s", err)
	return ExitFailed
}
