package runner

import (
	"context"
	"fmt"
	"path/filepath"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// ClusterIdentity exports the key by which minions know their master.
type ClusterIdentity interface {
	// ExportKey writes the cluster's RSA key pair as new files into a folder on the master that was
	// asked; dir is absolute. It returns their paths and the fingerprint of the public key.
	ExportKey(ctx context.Context, dir string) (files []string, fingerprint string, err error)
}

// Identity is the part of the family cluster that exports its identity.
func Identity(id ClusterIdentity) []Function {
	return []Function{{
		Name: "cluster.export_key", Params: []function.Param{function.Need("dir"),
			function.Opt("confirm", false)},
		Doc: `Write the cluster's RSA key pair to this master's disk, so that minions can move to another
master without signing in anew: cluster.pem (mode 0600) and cluster.pub. Whoever reads
cluster.pem can pose as the master to every minion.

dir
    absolute path of a folder that has neither file yet
confirm
    True: write it; on a terminal salt-run asks instead

Example:

    salt-run cluster.export_key /srv/export confirm=True`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			dir := c.Text("dir")
			if !filepath.IsAbs(dir) {
				return nil,
					fmt.Errorf("%s: give an absolute path; the master writes there, not this command", dir)
			}
			if !c.True("confirm") {
				return nil,
					fmt.Errorf("nothing written yet: anyone who reads cluster.pem can pose as the master to "+
						"every minion. "+
						"To write it type salt-run cluster.export_key %s confirm=True", dir)
			}
			files, fingerprint, err := id.ExportKey(ctx, filepath.Clean(dir))
			if err != nil {
				return nil, err
			}
			return value.Map{{Key: "files", Value: value.Texts(files)},
				{Key: "fingerprint", Value: fingerprint}}, nil
		},
	}}
}
