// Package containers holds an image file, its entry point, a compose file and a Kubernetes
// StatefulSet.
//
// Lives here: these files, try.sh that runs the entry point in a root of its own, and their tests.
// Does not: hold Go code.
package containers
