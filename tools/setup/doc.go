// Package setup writes a new cluster's first configuration: one file for each
// master and one for the balancer.
//
// Lives here: the command clustermaster init, the texts that it writes.
// Does not: read or check configurations (package config), change a running cluster.
package setup
