package runner

import (
	"context"

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
		Doc: "Import the jobs and returns that a Salt master stored as files (returner local_cache). Known ones stay as they are, so you may call it again.\n\n" +
			"cachedir\n    Where the folder jobs is; by default this master's cachedir.\ntest\n    Count only.\n\n" +
			"Example:\n\n    salt-run cluster.adopt_jobs\n    salt-run cluster.adopt_jobs cachedir=/mnt/old/var/cache/salt/master test=True",
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
