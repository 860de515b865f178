// Package jobcache keeps jobs and their returns on the masters that own them.
//
// Lives here: a job's records on the ring (load, minion lists, returns, end time), their expiry
// (keep_jobs_seconds), and what must never be written (keys, passwords, tokens). Does not: accept a
// return from a minion and fire its event (package master), choose the masters for records and the
// number of copies (package ringstore), show jobs (package runner).
//
// Guarantee: when SaveReturn gives no error, Returns finds the return on every surviving master
// until the job expires. A later return of the same minion for the same job never replaces it.
package jobcache
