package simminion

import (
	"context"
	"slices"
	"strings"
	"time"

	"clustermaster/value"
	"clustermaster/wire"
)

// take runs the job of a publication if it is for this minion and new.
func (m *Minion) take(ctx context.Context, load value.Map) {
	for _, key := range []string{"tgt", "jid", "fun", "arg"} {
		if _, ok := load.Get(key); !ok {
			return
		}
	}
	if !m.isTarget(load) {
		m.counts.foreign.Add(1)
		return
	}
	jid := load.String("jid")
	if !m.isNew(jid) {
		m.counts.duplicates.Add(1)
		return
	}
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	m.counts.jobs.Add(1)
	m.jobs.Go(func() {
		defer func() { <-m.slots }()
		m.run(ctx, jid, load)
	})
}

// isNew remembers a jid and reports whether it was not among the last JIDQueue.
func (m *Minion) isNew(jid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.jids, jid) {
		return false
	}
	if m.jids = append(m.jids, jid); len(m.jids) > m.cfg.JIDQueue {
		m.jids = slices.Delete(m.jids, 0, 1)
	}
	return true
}

// run calls the function, or several of a compound command, and returns the result.
func (m *Minion) run(ctx context.Context, jid string, load value.Map) {
	funs, _ := load.Get("fun")
	args, _ := load.Get("arg")
	argList, _ := args.([]any)
	m.setRunning(jid, load)
	r := outcome{}
	switch fun := funs.(type) {
	case string:
		r = m.callFunction(ctx, Call{Fun: fun, JID: jid}, argList)
	case []any:
		values, retcodes, successes := value.Map{}, value.Map{}, value.Map{}
		for i, f := range fun {
			name, _ := f.(string)
			var own []any
			if i < len(argList) {
				own, _ = argList[i].([]any)
			}
			one := m.callFunction(ctx, Call{Fun: name, JID: jid}, own)
			values, retcodes = values.Set(name, one.value), retcodes.Set(name, one.retcode)
			successes = successes.Set(name, one.success)
		}
		r = outcome{value: values, retcode: retcodes, success: successes}
	}
	m.setRunning(jid, nil)
	if ctx.Err() != nil {
		return
	}
	reply := value.Map{{Key: "cmd", Value: "_return"}, {Key: "id", Value: m.cfg.ID},
		{Key: "success", Value: r.success},
		{Key: "return", Value: r.value}, {Key: "retcode", Value: r.retcode}}
	if r.out != "" {
		reply = append(reply, value.Pair{Key: "out", Value: r.out})
	}
	reply = append(reply, value.Pair{Key: "jid", Value: jid}, value.Pair{Key: "fun", Value: funs},
		value.Pair{Key: "fun_args", Value: argList})
	if user, ok := load.Get("user"); ok && m.cfg.Version > 2 {
		reply = append(reply, value.Pair{Key: "user", Value: user})
	}
	stamp := wire.Stamp(time.Now())
	if !strings.HasPrefix(m.cfg.Release, "3008") {
		stamp = strings.TrimSuffix(stamp, "+00:00")
	}
	m.sendReturn(ctx, append(reply, value.Pair{Key: "_stamp", Value: stamp}))
}

// sendReturn makes return_retry_tries rounds, each with a request's tries.
func (m *Minion) sendReturn(ctx context.Context, load value.Map) {
	for try := 1; ; try++ {
		_, err := m.call(ctx, load)
		if err == nil {
			m.counts.returns.Add(1)
			return
		}
		if ctx.Err() != nil {
			return
		}
		m.cfg.Log.Debug("return", "jid", load.String("jid"), "err", err)
		if try >= m.cfg.ReturnRetryTries {
			m.counts.lost.Add(1)
			return
		}
		if err := pause(ctx, between(m.cfg.ReturnRetryTimer,
			2*m.cfg.ReturnRetryTimer)); err != nil {
			return
		}
	}
}

// setRunning records a job for saltutil.running; a nil load removes it.
func (m *Minion) setRunning(jid string, load value.Map) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if load == nil {
		delete(m.running, jid)
		if len(m.running) == 0 {
			m.running = nil
		}
		return
	}
	if m.running == nil {
		m.running = make(map[string]value.Map)
	}
	m.running[jid] = load
}
