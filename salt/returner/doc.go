// Package returner hands events and jobs to returners, Salt's and the site's: they are kept on disk
// until the returner has taken them, in their order.
//
// Lives here: which events are kept (event_return and its filters), when they are handed over, what
// is done when a returner does not take them.
//
// Does not: run Python (package pythonhost), keep on disk (package outbox), make events and jobs.
package returner
