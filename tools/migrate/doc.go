// Package migrate is the command clustermaster migrate: from a master of Salt 3006 to 3008 to this
// one, and back.
//
// Lives here: the plan (what becomes of each option, module and key; ports, disk, founder), the
// steps of apply and rollback with their journal, and what they restore if one fails. Does not:
// import keys or caches into the cluster; the master does that at founding (keys) and by salt-run
// (caches, jobs).
package migrate
