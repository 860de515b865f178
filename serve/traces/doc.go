// Package traces sends OpenTelemetry traces of jobs to a collector: from the order to the last
// return, with spans of every master that has a part in the job.
//
// Lives here: which spans a job has, their ids, which jobs and returns are left out, the queue in
// front of the collector. Does not: how a job is published or stored (packages master, orders).
//
// The ids follow from the cluster's name and the job's id. So all masters put their spans into the
// same trace, and no message between them names it.
package traces
