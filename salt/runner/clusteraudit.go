package runner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// AuditView is one record of the audit trail.
type AuditView struct {
	Number   uint64
	At, Last time.Time // UTC; the first and the last time that it happened
	Times    int
	Master   string // id of the master that took the order
	User     string
	Eauth    string
	From     string
	Order    string // the function or command
	Kind     string
	Action   string
	Subjects []string
	More     int    // number of subjects that are not listed
	Refused  string // why the order was refused, or ""
	Changed  bool
	// Automatic says that no operator gave the order.
	Automatic bool
}

// ClusterAudit reads the audit trail.
type ClusterAudit interface {
	// Audits returns the trail, newest last, and a note if it may be out of date, else "".
	Audits(ctx context.Context) (records []AuditView, note string)
	// AuditKinds are the kinds that records may have.
	AuditKinds() []string
}

// auditLimit is how many records are shown by default.
const auditLimit = 100

// AuditTrail is the part of the family cluster that shows who changed what.
func AuditTrail(a ClusterAudit) []Function {
	return []Function{{
		Name: "cluster.audit", Params: []function.Param{function.Opt("limit", int64(auditLimit)),
			function.Opt("kind", nil), function.Opt("since", nil)},
		Doc: `Show who changed minions' keys, masters, secrets or tokens, when, from where, and with what
result; newest last, the same on all masters. It contains no secrets.

limit
    how many of the newest records; 0 shows all
kind
    only these: ` + strings.Join(a.AuditKinds(), ", ") + `, as a list or with commas
since
    a time in UTC, such as '2026-11-21 09:30', or how long ago, such as 2h30m

Example:

    salt-run cluster.audit
    salt-run cluster.audit limit=20 kind=members,secrets since=24h`,
		Run: func(ctx context.Context, c *Call) (any, error) { return auditTrail(ctx, a, c) },
	}}
}

func auditTrail(ctx context.Context, a ClusterAudit, c *Call) (any, error) {
	limit, err := c.Number("limit")
	if err != nil || limit < 0 || limit != float64(int(limit)) {
		return nil, fmt.Errorf("limit %v: give a whole number of records, 0 for all",
			c.Arg("limit"))
	}
	var kinds []string
	for _, text := range c.Texts("kind") {
		for kind := range strings.SplitSeq(text, ",") {
			kind = strings.TrimSpace(kind)
			if !slices.Contains(a.AuditKinds(), kind) {
				return nil, fmt.Errorf("kind %q: unknown; the kinds are %s", kind,
					strings.Join(a.AuditKinds(), ", "))
			}
			kinds = append(kinds, kind)
		}
	}
	since, err := sinceOf(c.Text("since"), time.Now())
	if err != nil {
		return nil, err
	}
	records, note := a.Audits(ctx)
	if note != "" {
		c.Warn(note)
	}
	records = slices.DeleteFunc(records, func(r AuditView) bool {
		return r.Last.Before(since) || len(kinds) > 0 && !slices.Contains(kinds, r.Kind)
	})
	if limit > 0 {
		records = records[max(0, len(records)-int(limit)):]
	}
	out := make([]any, len(records))
	for i, r := range records {
		out[i] = auditMap(r)
	}
	return out, nil
}

// sinceOf reads a time, or a duration before now.
func sinceOf(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago.Abs()).UTC(), nil
	}
	t, err := parseTime(text, now)
	if err != nil {
		return t, fmt.Errorf("since: %w, or how long ago, like 2h30m", err)
	}
	return t, nil
}

func auditMap(r AuditView) value.Map {
	result := "unchanged"
	switch {
	case r.Refused != "":
		result = "refused: " + r.Refused
	case r.Changed:
		result = "changed"
	}
	m := value.Map{
		{Key: "number", Value: int64(r.Number)},
		{Key: "time", Value: r.At.Format(time.RFC3339Nano)}, {Key: "master", Value: r.Master},
		{Key: "user", Value: r.User},
	}
	if r.Eauth != "" {
		m = append(m, value.Pair{Key: "eauth", Value: r.Eauth})
	}
	m = append(m, value.Map{
		{Key: "from", Value: r.From}, {Key: "order", Value: r.Order}, {Key: "kind", Value: r.Kind},
		{Key: "action", Value: r.Action},
		{Key: "subjects", Value: value.Texts(r.Subjects)}, {Key: "result", Value: result},
	}...)
	if r.More > 0 {
		m = append(m, value.Pair{Key: "more_subjects", Value: int64(r.More)})
	}
	if r.Automatic {
		m = append(m, value.Pair{Key: "automatic", Value: true})
	}
	if r.Times > 1 {
		m = append(m, value.Pair{Key: "times", Value: int64(r.Times)},
			value.Pair{Key: "last", Value: r.Last.Format(time.RFC3339Nano)})
	}
	return m
}
