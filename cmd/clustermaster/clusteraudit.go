package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"clustermaster/cluster"
	"clustermaster/cluster/fsm"
	"clustermaster/salt/runner"
)

// auditTrail shows the audit trail to runners.
type auditTrail struct{ n *cluster.Node }

var _ runner.ClusterAudit = auditTrail{}

// Audits implements runner.ClusterAudit.
func (a auditTrail) Audits(ctx context.Context) ([]runner.AuditView, string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	records, err := a.n.Audits(ctx)
	note := ""
	if err != nil {
		note = staleNote + err.Error()
	}
	out := make([]runner.AuditView, len(records))
	for i, r := range records {
		out[i] = runner.AuditView{
			Number: r.Number, At: r.By.At, Last: r.Last, Times: r.Times, Master: r.By.Master, User: r.By.User, Eauth: r.By.Eauth, From: r.By.From,
			Order: r.By.Order, Kind: fsm.AuditKinds[r.Kind], Action: r.Action, Subjects: r.Subjects, More: r.More,
			Refused: string(r.Refused), Changed: r.Changed, Automatic: r.By.Automatic,
		}
	}
	return out, note
}

// AuditKinds implements runner.ClusterAudit.
func (auditTrail) AuditKinds() []string {
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(fsm.AuditKinds)) {
		words = append(words, fsm.AuditKinds[kind])
	}
	return words
}
