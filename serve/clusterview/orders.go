package clusterview

import (
	"context"

	"clustermaster/cluster"
	"clustermaster/cluster/backup"
	"clustermaster/salt/runner"
)

// Orders passes operators' orders to the cluster.
type Orders struct{ *cluster.Node }

var _ runner.ClusterOrders = Orders{}

// Remove implements runner.ClusterMembership.
func (o Orders) Remove(ctx context.Context, peer string, keepSecret bool) (runner.RemovalView,
	error) {
	r, err := o.Node.Remove(ctx, peer, keepSecret)
	return runner.RemovalView{ID: r.Member.ID, Secret: r.Secret, Unconfirmed: r.Unconfirmed,
		Warnings: r.Warnings}, err
}

// Identity hands over the cluster's own key.
type Identity struct {
	Node     *cluster.Node
	HashType string // of fingerprints
}

var _ runner.ClusterIdentity = Identity{}

// ExportKey implements runner.ClusterIdentity.
func (i Identity) ExportKey(ctx context.Context, dir string) (files []string, fingerprint string,
	err error) {
	return i.Node.ExportKey(ctx, dir, i.HashType)
}

// Backups writes and reads backup files.
type Backups struct{ Files *backup.Files }

var _ runner.ClusterBackups = Backups{}

// Backup implements runner.ClusterBackups, as does Restore.
func (b Backups) Backup(ctx context.Context, path, passphrase string, jobs bool) (runner.BackupView,
	error) {
	v, err := b.Files.Backup(ctx, path, passphrase, jobs)
	return runner.BackupView(v), err
}

func (b Backups) Restore(ctx context.Context, path, passphrase string, jobs,
	test bool) (runner.BackupView, error) {
	v, err := b.Files.Restore(ctx, path, passphrase, jobs, test)
	return runner.BackupView(v), err
}
