package runner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// AdoptedJobs counts what was imported.
type AdoptedJobs struct{ Jobs, Returns, Failed int }

// JobsAdoption is the function that imports the jobs of a Salt master; cachedir is this master's.
func JobsAdoption(adopt func(ctx context.Context, cachedir string, dry bool) (AdoptedJobs, error),
	cachedir string) []Function {
	return []Function{{
		Name: "cluster.adopt_jobs", Params: []function.Param{function.Opt("cachedir", nil),
			function.Opt("test", false)},
		Doc: `Import the jobs and returns that a Salt master stored as files (returner local_cache). Known
ones stay as they are, so you may call it again.

cachedir
    Where the folder jobs is; by default this master's cachedir.
test
    Count only.

Example:

    salt-run cluster.adopt_jobs
    salt-run cluster.adopt_jobs cachedir=/mnt/old/var/cache/salt/master test=True`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			dir := cachedir
			if c.Given("cachedir") {
				dir = c.Text("cachedir")
			}
			done, err := adopt(ctx, dir, c.True("test"))
			if err != nil {
				return nil, err
			}
			return value.Map{
				{Key: "jobs", Value: int64(done.Jobs)},
				{Key: "returns", Value: int64(done.Returns)},
				{Key: "failed", Value: int64(done.Failed)},
				{Key: "test", Value: c.True("test")},
			}, nil
		},
	}}
}

// JobsExport writes jobs as files of a Salt master.
type JobsExport interface {
	Export(ctx context.Context, since string) (jobs, returns, failed int, incomplete string,
		err error)
}

// Return is the function that writes caches and jobs as files of a Salt master below this master's
// cachedir.
func Return(all Banks, jobs JobsExport, cachedir string) []Function {
	return []Function{{
		Name: "cluster.return_to_salt", Params: []function.Param{function.Need("release"),
			function.Opt("since", "")},
		Doc: `Write grains, pillar, mine, the other banks of the cache, and jobs with their returns as files of
a Salt master, below this master's cachedir. Present files are replaced; returns stay as they are.
"failed" counts values and returns that no file could be made for; the master's log has each.
clustermaster migrate rollback calls it.

release
    The release of the Salt master that will read them: 3006, 3007 or 3008.
since
    Leave out jobs whose jid is less.

Example:

    salt-run cluster.return_to_salt 3007
    salt-run cluster.return_to_salt 3008 since=20260301`,
		Run: func(ctx context.Context, c *Call) (any, error) {
			release, err := strconv.Atoi(c.Text("release"))
			if err != nil || release < 3006 || release > 3008 {
				return nil, fmt.Errorf("release is %q; say 3006, 3007 or 3008",
					c.Text("release"))
			}
			files, failed, incomplete, err := all.Export(ctx, cachedir, release == 3008)
			if err != nil {
				return nil, err
			}
			n, returns, left, missing, err := jobs.Export(ctx, c.Text("since"))
			if err != nil {
				return nil, err
			}
			banks := value.Map{}
			for _, bank := range slices.Sorted(maps.Keys(files)) {
				banks = append(banks, value.Pair{Key: bank, Value: int64(files[bank])})
			}
			return value.Map{
				{Key: "banks", Value: banks},
				{Key: "jobs", Value: int64(n)}, {Key: "returns", Value: int64(returns)},
				{Key: "failed", Value: int64(failed + left)},
				{Key: "incomplete", Value: cmp.Or(incomplete, missing)},
			}, nil
		},
	}}
}
