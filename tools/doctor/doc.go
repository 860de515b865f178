// Package doctor is the command clustermaster doctor: it finds problems of a master's machine, its
// configuration and its cluster, and says what to do.
//
// Lives here: the choice of checks, the balancer's ports as minions see them, the page, JSON, exit
// codes. Does not: the checks themselves (serve/checkup), and what is wrong inside a cluster
// (cluster.health of the running master).
package doctor
