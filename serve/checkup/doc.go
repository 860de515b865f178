// Package checkup looks at one master's machine and configuration, and asks the other masters of
// its cluster to do the same.
//
// Lives here: the checks of ports, names, clock, disk, limits, memory, folders and certificates;
// digests of options and roots, by which masters are compared without telling values; the exchange
// of reports over the event mesh.
//
// Does not: judge the cluster as a whole (cluster.health does), print anything (tools/doctor does),
// change anything.
//
// The exchange is by events below salt/cluster/doctor/, which no minion may fire. A report holds no
// value of any option and nothing at all of options that are secrets.
package checkup
