package clusterview

import (
	"context"
	"maps"
	"slices"

	"clustermaster/cluster"
	"clustermaster/cluster/fsm"
	"clustermaster/salt/runner"
)

// Audit shows the audit trail.
type Audit struct{ Node *cluster.Node }

var _ runner.ClusterAudit = Audit{}

// Audits implements runner.ClusterAudit.
func (a Audit) Audits(ctx context.Context) ([]runner.AuditView, string) {
	note := a.Node.Fresh(ctx)
	records := a.Node.State().Audits()
	out := make([]runner.AuditView, len(records))
	for i, r := range records {
		out[i] = runner.AuditView{
			Number: r.Number, At: r.By.At, Last: r.Last, Times: r.Times, Master: r.By.Master,
			User: r.By.User, Eauth: r.By.Eauth, From: r.By.From,
			Order: r.By.Order, Kind: fsm.AuditKinds[r.Kind], Action: r.Action, Subjects: r.Subjects,
			More:    r.More,
			Refused: string(r.Refused), Changed: r.Changed, Automatic: r.By.Automatic,
		}
	}
	return out, note
}

// AuditKinds implements runner.ClusterAudit.
func (Audit) AuditKinds() []string {
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(fsm.AuditKinds)) {
		words = append(words, fsm.AuditKinds[kind])
	}
	return words
}
