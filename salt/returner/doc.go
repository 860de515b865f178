// Package returner hands events and jobs to returners, Salt's and the site's. They stay on disk, in
// order, until the returner has taken them.
//
// Lives here: which events are kept (event_return and its filters), when they are handed over, and
// what happens when a returner does not take them.
//
// Does not: run Python (package pythonhost), store queues on disk (package outbox), create events
// and jobs.
package returner
