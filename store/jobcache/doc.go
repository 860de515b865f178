// Package jobcache keeps jobs and their returns on the masters that own them.
//
// Lives here: what a job consists of on the ring (load, minion lists, returns, end time), when it
// expires (keep_jobs_seconds), what must never be written (keys, passwords, tokens). Does not:
// accepting a return from a minion and firing its event (package master), where records lie and how
// many copies there are (package ringstore), showing jobs (package runner).
//
// Guarantee: when SaveReturn gives no error, Returns finds the return on every surviving master
// until the job expires. A later return of the same minion for the same job never replaces it.
package jobcache
