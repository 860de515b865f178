// Package localcache writes the jobs that users order with Salt's own clients, as Salt's returner
// local_cache does, below cachedir/jobs: those clients, and a salt-run that runs in its own
// process, read the job cache from disk. LocalClient does not wait for returns of a job that it
// does not find there.
//
// Lives here: the folders of such jobs, their load, minions and returns, and their removal
// (keep_jobs_seconds).
//
// Does not: keep jobs (package jobcache does, for the whole cluster; none of our commands reads
// these files), know who ordered them (package master).
//
// Guarantee: when Keep returns, Salt's get_load finds the job. Returns are on disk soon after their
// events, if this master runs and does not follow too many jobs already.
package localcache
