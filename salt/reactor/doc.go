// Package reactor answers events with jobs, runner and wheel functions, as the option reactor says.
//
// Lives here: which SLS files react to a tag, what the reactions in them mean
// (salt/utils/reactor.py, Salt 3008.3), the queue of runner and wheel functions and its bound, the
// messages about wrong reactions.
//
// Does not: render (package render), compile high data (package state), publish or run functions
// (told through Deps), keep what operators changed (cluster/fsm).
//
// Guarantee: an event is reacted to once in the cluster, on the master on whose bus it was fired;
// one whose user is Reactor never.
package reactor
