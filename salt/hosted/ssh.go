package hosted

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"clustermaster/salt/pythonhost"
	"clustermaster/value"
)

// sshTimeoutOption limits calls of salt-ssh.
const sshTimeoutOption = "python_ssh_timeout"

// SSH runs execution functions by salt-ssh.
type SSH struct {
	Host      *pythonhost.Host
	Available func() error // why there is no interpreter with Salt
	Timeout   time.Duration
}

// levelError is the level ERROR of Python's logging.
const levelError = 40

// Cmd runs a function on targets of a roster. The keyword arguments are those of Salt's
// saltutil.cmd. It returns what salt-ssh says of each target, and the first error that it logged,
// "" if none. The process needs no token of Options.Children: it mostly waits, and pillars must not
// wait for it.
func (s SSH) Cmd(ctx context.Context, tgt any, fun string, kwargs value.Map) (value.Map, string,
	error) {
	if err := s.Available(); err != nil {
		return nil, "", fmt.Errorf("salt-ssh needs Salt: %w", err)
	}
	session := s.Host.Job()
	defer session.Close()
	logged := ""
	v, err := session.Call(ctx, pythonhost.Call{Kind: pythonhost.Module, Fun: "saltutil.cmd",
		Args: []any{tgt, fun}, Kwargs: kwargs, Limit: s.Timeout, LimitOption: sshTimeoutOption,
		Logged: func(level int, text string) {
			if level >= levelError && logged == "" { // what follows is mostly its consequence
				logged = text
			}
		}})
	if err != nil {
		return nil, logged, err
	}
	m, ok := v.(value.Map)
	if !ok {
		return nil, logged, fmt.Errorf("salt-ssh returned %T, not a map", v)
	}
	return m, logged, nil
}

// Targets lists the targets of the roster that tgt matches.
func (s SSH) Targets(ctx context.Context, tgt any, tgtType string) ([]string, error) {
	session := s.Host.Job()
	defer session.Close()
	v, err := session.Call(ctx, pythonhost.Call{Kind: pythonhost.Roster, Fun: "roster.targets",
		Args: []any{tgt, cmp.Or(tgtType, "glob")}})
	if err != nil {
		return nil, err
	}
	list, _ := v.([]any)
	var ids []string
	for _, e := range list {
		if id, ok := e.(string); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Run runs a function on targets of the roster as a job that was published.
func (s SSH) Run(ctx context.Context, jid string, tgt any, tgtType, fun string, arg []any) error {
	_, _, err := s.Cmd(ctx, tgt, fun, value.Map{{Key: "arg", Value: arg},
		{Key: "tgt_type", Value: cmp.Or(tgtType, "glob")}, {Key: "ssh", Value: true},
		{Key: "jid", Value: jid}})
	return err
}
