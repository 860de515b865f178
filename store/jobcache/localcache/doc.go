// Package localcache writes jobs that users order with Salt's own clients as Salt's returner
// local_cache does, below cachedir/jobs: those clients, and a salt-run that runs in its own
// process, read the job cache from disk. LocalClient waits for no returns of a job that is not
// there.
//
// Lives here: the folders of such jobs, their load, minions and returns, and how long they stay
// (keep_jobs_seconds).
//
// Does not: keep jobs (package jobcache does, for the whole cluster; no command of ours reads these
// files), know who ordered them (package master).
//
// Guarantee: when Keep returns, Salt's get_load finds the job. Returns are on disk soon after their
// events, as far as this master runs and has room to follow the job.
package localcache
