// Package reactor answers events with jobs, runner and wheel functions, as the option reactor
// configures.
//
// Lives here: the SLS files for a tag, the meaning of their reactions (salt/utils/reactor.py, Salt
// 3008.3), the queue of runner and wheel functions and its bound, the messages about wrong
// reactions.
//
// Does not: render (package render), compile high data (package state), publish or run functions
// (told through Deps), keep what operators changed (cluster/fsm).
//
// Guarantee: the cluster reacts to an event once, on the master whose bus it was fired on, and
// never to one whose user is Reactor.
package reactor
