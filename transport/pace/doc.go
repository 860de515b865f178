// Package pace decides how fast masters send to each other, and how long one waits for another that
// sends nothing.
//
// Lives here: the limit of bytes per second, and reading a stream of steps to its last one. Does
// not: what is sent.
package pace
