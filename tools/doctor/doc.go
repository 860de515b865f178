// Package doctor is the command clustermaster doctor: it finds problems of a master's machine, its
// configuration and its cluster, and says what to do.
//
// Lives here: the choice of checks, the balancer's ports as minions see them, the page, JSON, exit
// codes. Does not: make the checks (serve/checkup) or find problems inside a cluster
// (cluster.health of the running master does).
package doctor
