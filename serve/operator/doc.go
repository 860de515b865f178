// Package operator serves the commands: a gRPC service on the unix socket
// sock_dir/clustermaster.sock, and its client.
//
// Lives here: identifying the caller (SO_PEERCRED), limits of the socket, translation between the
// service's messages and the types of other packages. Does not: resolve targets, change keys, run
// runners (other packages do), or print anything (package cli).
package operator
