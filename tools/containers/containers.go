// Package containers holds an image file, its entry point, a compose file and a Kubernetes
// StatefulSet.
//
// Lives here: these files, try.sh that runs them under podman, and their tests.
// Does not: hold Go code.
package containers
