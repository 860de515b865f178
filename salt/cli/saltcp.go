package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"clustermaster/salt/gather"
	"clustermaster/salt/output"
	"clustermaster/value"
)

// maxCopied bounds the bytes of one salt-cp without --chunked: a single message carries all
// the files to the minions.
const maxCopied = 16 << 20

func saltCPParser() *parser {
	p := newParser("salt-cp", "[options] '<target>' SOURCE DEST",
		"Copy files to minions. One job carries all files; with --chunked, each file goes in pieces.",
		"salt-cp '*' motd /etc/motd",
		"salt-cp -L 'web1,web2' a.conf b.conf /etc/app/",
		"salt-cp -C '*' site /srv/www")
	p.addTimeout("Seconds to wait for returns before asking the minions whether they still run the job. Default: 5.")
	p.addTargets(false)
	p.addOutput()
	p.add(groupFiles,
		option{names: "-C --chunked", dest: "chunked", fromFile: true,
			help: "Copy big files and whole folders in pieces and keep file modes."},
		option{names: "-n --no-compression", dest: "no_compression",
			help: "Don't compress the pieces of --chunked."},
	)
	p.addLogging("-l --log-level")
	return p
}

// SaltCP is the command salt-cp.
func SaltCP(ctx context.Context, args []string, env Env) int {
	p := saltCPParser()
	v, operands, code, done := env.begin(p, args)
	if done {
		return code
	}
	kind, err := p.targetKind(v)
	if err != nil {
		return p.fail(env.Stderr, err)
	}
	if len(operands) < 3 {
		p.help(env.Stdout)
		return p.fail(env.Stderr, usageError("Insufficient arguments"))
	}
	opts, code, ok := env.configuration(p, v)
	if !ok {
		return code
	}
	run := &saltRun{env: env, opts: opts, v: v}
	if run.print, err = env.printer(v, opts); err != nil {
		return p.fail(env.Stderr, err)
	}
	defer run.print.close()
	sources, dest := operands[1:len(operands)-1], operands[len(operands)-1]
	for i, path := range sources {
		sources[i] = realPath(path)
	}
	run.job = gather.Publish{Tgt: operands[0], TgtType: kind, Fun: "cp.recv", User: env.user()}
	if !v.on("chunked") {
		files, err := loadFiles(sources)
		switch {
		case errors.As(err, new(folder)):
			env.println(err.Error()) // where Salt prints it
			return ExitFailed
		case err != nil:
			env.errorf("ERROR: %s", err)
			return ExitFailed
		}
		// Salt prints an empty result for missing sources and exits with 0; this does the
		// same but adds the reason.
		if len(files) == 0 {
			env.errorf("none of the source files exists; check the paths")
			return run.shown(value.Map{})
		}
		run.job.Arg = []any{files, dest}
	}
	if kind == "list" {
		run.job.Tgt = listTarget(operands[0])
	}
	run.job.Kwargs = run.kwargs()
	run.waits()
	if run.daemon, err = run.reach(ctx); err != nil {
		return run.down(ctx, err)
	}
	defer run.daemon.Close()
	if err := run.writeOut(); err != nil {
		return run.noBatch(err.Error())
	}
	if v.on("chunked") {
		return run.chunked(ctx, sources, dest)
	}
	return run.copy(ctx)
}

// copy sends the files and prints each minion's result.
func (r *saltRun) copy(ctx context.Context) int {
	all := value.Map{}
	summary, err := gather.Run(ctx, r.daemon, r.job, r.wait, func(id string, ret gather.Return) {
		val, err := unpacked(ret.Return)
		if err != nil {
			val = err.Error()
		}
		all = append(all, value.Pair{Key: id, Value: val})
	})
	if err != nil {
		return r.stopped(ctx, summary.JID, err)
	}
	if !r.sent(summary.Published) {
		return ExitOK
	}
	for _, id := range summary.Silent() {
		all = append(all, value.Pair{Key: id, Value: gather.NoReturn(summary.JID)})
	}
	return r.shown(all)
}

// shown prints a value and returns the exit code.
func (r *saltRun) shown(v any) int {
	if err := r.print.show(output.Result{Value: v}); err != nil {
		r.env.errorf("ERROR: %s", err)
		return ExitFailed
	}
	return ExitOK
}

// folder is the path of a source that only --chunked copies.
type folder string

func (f folder) Error() string {
	return string(f) +
		" is a directory, only files are supported in non-chunked mode. Use \"--chunked\" command line argument." // Salt's text
}

// loadFiles reads the sources and skips those that don't exist. The error is a folder for one.
// cp.recv takes texts only, and empties its destination before it looks at them: so other files are
// refused here.
func loadFiles(paths []string) (value.Map, error) {
	files, total := value.Map{}, 0
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if info.IsDir() {
			return nil, folder(path)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		text, err := readBounded(path, maxCopied-total)
		if err != nil {
			return nil, err
		}
		total += len(text)
		if !utf8.Valid(text) {
			return nil, fmt.Errorf("%s is not UTF-8 text; copy it with -C (--chunked)", path)
		}
		files = files.Set(path, string(text))
	}
	return files, nil
}

func readBounded(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	if len(text) > limit {
		return nil,
			fmt.Errorf("source %s is too big: the files of one command may have %d MiB together",
				path, maxCopied>>20)
	}
	return text, nil
}
