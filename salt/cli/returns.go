package cli

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	"clustermaster/salt/gather"
	"clustermaster/salt/output"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// answered holds what the summary needs about one minion.
type answered struct {
	silent, failed bool
}

// gather sends the job and prints each return as it arrives.
func (r *saltRun) gather(ctx context.Context) int {
	failed := false
	seen := make(map[string]answered)
	var failure error
	summary, err := gather.Run(ctx, &announced{Daemon: r.daemon, run: r}, r.job, r.wait,
		func(id string, ret gather.Return) {
			code := ret.Code()
			seen[id] = answered{failed: code != 0}
			failed = failed || code != 0
			if err := r.show(id, ret, code); err != nil && failure == nil {
				failure = err
			}
		})
	if err != nil {
		return r.stopped(ctx, summary.JID, err)
	}
	if unwanted(summary.Published) {
		return ExitOK // Salt's exit code
	}
	if len(summary.Minions) == 0 && r.wait.SyndicWait == 0 {
		return r.nothing()
	}
	for _, id := range summary.Silent() {
		if _, known := seen[id]; known || r.isSyndic(id) { // the minions below it return
			continue
		}
		text := gather.NoReturn(summary.JID)
		seen[id] = answered{silent: true}
		failed = true
		if err := r.print.show(output.Result{Value: value.Map{{Key: id, Value: text}},
			Outputter: "no_return", Retcode: 1}); err != nil && failure == nil {
			failure = err
		}
	}
	if (r.v.on("cli_summary") || r.opts.CLISummary && !r.v.given("cli_summary")) &&
		!r.v.given("output") {
		r.summary(seen)
	}
	if failure != nil {
		r.env.errorf("ERROR: %s", failure)
		return ExitFailed
	}
	if failed {
		r.env.errorf("ERROR: Minions returned with non-zero exit code")
		return ExitFailed
	}
	return ExitOK
}

func (r *saltRun) isSyndic(id string) bool {
	return r.opts.OrderMasters && slices.ContainsFunc(r.opts.Syndics,
		func(glob string) bool { return fnmatch.Match(glob, id) })
}

// nothing ends a run whose job was not sent: an empty document and an error.
func (r *saltRun) nothing() int {
	if r.job.Fun == "sys.doc" {
		r.env.errorf("No minions found to gather docs from")
		return ExitNoReturn
	}
	return r.document(nil, output.Result{Value: value.Map{}})
}

// announced prints the lines that precede the returns as soon as the job is sent.
type announced struct {
	Daemon
	run *saltRun
}

func (a *announced) Publish(ctx context.Context, p gather.Publish) (gather.Published, error) {
	published, err := a.Daemon.Publish(ctx, p)
	if err != nil || p.Fun == "saltutil.find_job" {
		return published, err
	}
	r := a.run
	if r.sent(published) {
		switch {
		case r.v.on("verbose"):
			line := "Executing job with jid " + published.JID
			r.env.println(line + "\n" + strings.Repeat("-", len(line)) + "\n")
		case r.v.on("show_jid") || r.opts.ShowJID:
			r.env.println("jid: " + published.JID)
		}
	}
	return published, nil
}

func (r *saltRun) show(id string, ret gather.Return, code int) error {
	val, err := unpacked(ret.Return)
	if err != nil {
		return fmt.Errorf("read return of %s: %w", id, err)
	}
	return r.print.show(output.Result{Value: value.Map{{Key: id, Value: val}}, Outputter: ret.Out,
		Retcode: code})
}

func unpacked(raw value.Raw) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	return raw.Unpack()
}

func (r *saltRun) summary(seen map[string]answered) {
	var silent, failed []string
	for id, a := range seen {
		switch {
		case a.silent:
			silent = append(silent, id)
		case a.failed:
			failed = append(failed, id)
		}
	}
	rule := "-------------------------------------------"
	line := r.env.println
	line("\n\n" + rule + "\nSummary\n" + rule)
	line(fmt.Sprintf("# of minions targeted: %d", len(seen)))
	line(fmt.Sprintf("# of minions returned: %d", len(seen)-len(silent)))
	line(fmt.Sprintf("# of minions that did not return: %d", len(silent)))
	line(fmt.Sprintf("# of minions with errors: %d", len(failed)))
	if r.v.on("verbose") {
		for _, l := range []struct {
			label string
			ids   []string
		}{{"Minions not responding: ", silent}, {"Minions with failures: ", failed}} {
			if len(l.ids) > 0 {
				sort.Strings(l.ids)
				line(l.label + strings.Join(l.ids, " "))
			}
		}
	}
	line(rule)
}

// docs prints the documentation that minions return, each function once.
func (r *saltRun) docs(ctx context.Context) int {
	found := value.Map{}
	any := false
	summary, err := gather.Run(ctx, &announced{Daemon: r.daemon, run: r}, r.job, r.wait,
		func(_ string, ret gather.Return) {
			any = true
			val, _ := unpacked(ret.Return)
			m, _ := val.(value.Map)
			for _, p := range m {
				name, _ := p.Key.(string)
				if text, ok := p.Value.(string); ok && text != "" {
					if _, known := found.Get(name); !known {
						found = append(found, value.Pair{Key: name, Value: text})
					}
				}
			}
		})
	if err != nil {
		return r.stopped(ctx, summary.JID, err)
	}
	if !any && len(summary.NotReturned) == 0 {
		return r.nothing()
	}
	sorted, _ := value.Sorted(found)
	for _, p := range sorted {
		if r.v.given("output") {
			if err := r.print.show(output.Result{Value: value.Map{p},
				Outputter: "nested"}); err != nil {
				r.env.errorf("ERROR: %s", err)
				return ExitFailed
			}
			continue
		}
		r.env.println(value.Str(p.Key) + ":\n" + value.Str(p.Value) + "\n")
	}
	return ExitOK
}
