package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// ClusterRescue revives a cluster that has lost its quorum for good.
type ClusterRescue interface {
	// Recover makes the master asked the whole cluster; confirm is the cluster_id, typed by the
	// operator. It returns the ids given up.
	Recover(ctx context.Context, confirm string) ([]string, error)
}

// BackupView describes the content of a backup.
type BackupView struct {
	ClusterID string
	Master    string // that wrote it
	At        time.Time
	Members   []string // ids, for the record
	Keys      int      // of minions, in all states
	Jobs      int      // written or restored; 0 if not requested
	Bytes     int64    // of the file; 0 if it was read
	Dropped   []string // ids whose keys exist now but not in the backup
	Again     []string // ids whose keys are accepted in the backup but not now
	// tokens of external_auth that are valid now but not in the backup, and the other way round
	TokensLost, TokensAgain int

	Note string // what is missing; "" if it is complete
}

// ClusterBackups writes and reads files on the master asked. Paths are absolute.
type ClusterBackups interface {
	Backup(ctx context.Context, path, passphrase string, jobs bool) (BackupView, error)
	// Restore restores the file's content; with test it only reports what it would do.
	Restore(ctx context.Context, path, passphrase string, jobs, test bool) (BackupView, error)
}

// Backups is the part of the family cluster that saves and restores.
func Backups(b ClusterBackups) []Function {
	params := []function.Param{function.Need("file"), function.Secret("passphrase"),
		function.Opt("passphrase_file", nil), function.Opt("jobs", false)}
	return []Function{
		{
			Name: "cluster.backup", Params: params,
			Doc: `Write minion keys, cluster key, session secrets and the list of members to a new file on this
master, sealed with a passphrase.

file
    absolute path that does not exist yet
passphrase_file
    absolute path of a file with the passphrase, 12 characters or more; without it salt-run asks
jobs
    True: also all jobs and returns

Example:

    salt-run cluster.backup /srv/backup/cluster.sealed passphrase_file=/srv/backup/passphrase`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				path, passphrase, err := sealedFile(c)
				if err != nil {
					return nil, err
				}
				v, err := b.Backup(ctx, path, passphrase, c.True("jobs"))
				if err != nil {
					return nil, err
				}
				if v.Note != "" {
					c.Warn(v.Note)
				}
				return append(value.Map{{Key: "file", Value: path}, {Key: "bytes", Value: v.Bytes}},
					v.rows()...), nil
			},
		},
		{
			Name: "cluster.restore", Params: append(params[:len(params):len(params)],
				function.Opt("test", false)),
			Doc: `Restore a file of cluster.backup, on this cluster or on a new one: cluster key, session secrets
and exactly those minion keys, so that minions go on without a new key. Members stay as they
are. The whole file is checked first. With rotate_aes_key, publications are sealed with a new AES
key from then on. On a cluster that has keys, the answer names those that are dropped and those
that are accepted again, and counts tokens that are lost or valid again.

test
    True: only check the file and show what it contains

Example:

    salt-run cluster.restore /srv/backup/cluster.sealed passphrase_file=/srv/backup/passphrase`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				path, passphrase, err := sealedFile(c)
				if err != nil {
					return nil, err
				}
				v, err := b.Restore(ctx, path, passphrase, c.True("jobs"), c.True("test"))
				if err != nil {
					return nil, err
				}
				if v.Note != "" {
					c.Warn(v.Note)
				}
				out := append(value.Map{{Key: "restored", Value: !c.True("test")}}, v.rows()...)
				return append(out,
					value.Pair{Key: "keys_dropped", Value: value.Texts(v.Dropped)},
					value.Pair{Key: "keys_accepted_again", Value: value.Texts(v.Again)},
					value.Pair{Key: "tokens_lost", Value: int64(v.TokensLost)},
					value.Pair{Key: "tokens_valid_again", Value: int64(v.TokensAgain)}), nil
			},
		},
	}
}

func (v BackupView) rows() value.Map {
	return value.Map{
		{Key: "cluster_id", Value: v.ClusterID}, {Key: "written_by", Value: v.Master},
		{Key: "written_at", Value: v.At.Format(time.RFC3339)},
		{Key: "members", Value: value.Texts(v.Members)}, {Key: "keys", Value: int64(v.Keys)},
		{Key: "jobs", Value: int64(v.Jobs)},
	}
}

// maxPassphrase bounds the bytes read from a passphrase file.
const maxPassphrase = 4096

// sealedFile reads the arguments that backup and restore share.
func sealedFile(c *Call) (path, passphrase string, err error) {
	path = c.Text("file")
	if !filepath.IsAbs(path) {
		return "", "",
			fmt.Errorf("%s: give an absolute path; the master opens it, not this command", path)
	}
	passphrase = c.Text("passphrase")
	if from := c.Text("passphrase_file"); from != "" {
		if passphrase != "" {
			return "", "",
				errors.New("passphrase and passphrase_file are both given; leave one out")
		}
		f, err := os.Open(from)
		if err != nil {
			return "", "", fmt.Errorf("read passphrase_file: %w", err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxPassphrase))
		if err != nil {
			return "", "", fmt.Errorf("read passphrase_file: %w", err)
		}
		passphrase = strings.TrimRight(string(b), "\r\n")
	}
	if passphrase == "" {
		return "", "",
			errors.New("no passphrase: give passphrase_file=/path, or type it when salt-run asks")
	}
	return path, passphrase, nil
}

// Rescue is the part of the family cluster for when the quorum is lost.
func Rescue(r ClusterRescue) []Function {
	return []Function{
		{
			Name: "cluster.recover", Params: []function.Param{function.Opt("confirm", nil)},
			Doc: `Make this master the whole cluster, after the quorum was lost for good. Use it only if a
majority of the voters' disks is gone: everything that only they had acknowledged is lost, and
none of them may ever run again with its data directory. The master opens its cluster anew, and
others join it with empty data directories. It is refused while there is a quorum, or masters that
answer and may elect a leader.

confirm
    the cluster_id, as proof that you mean it; without it nothing is done but saying what would be

Example:

    salt-run cluster.recover confirm=production`,
			Run: func(ctx context.Context, c *Call) (any, error) {
				lost, err := r.Recover(ctx, c.Text("confirm"))
				if err != nil {
					return nil, err
				}
				c.Warn("this master now opens its cluster again; salt-run cluster.members shows when it is " +
					"ready. Never start " +
					"the masters given up with their old data directories")
				return value.Map{{Key: "recovering", Value: true},
					{Key: "given_up", Value: value.Texts(lost)}}, nil
			},
		},
	}
}
