// Package gather publishes a job and collects its returns, as Salt's local client does.
//
// Lives here: the algorithm: which minions are expected, when to ask the silent ones with
// saltutil.find_job, when to stop; batches (a window over the minions that answer a ping) and which
// minions have a function.
//
// Does not: reach a master (interface Master), print (package cli), or keep returns (package
// jobcache).
//
// For each event that was trimmed (max_event_size) or lost, it reads that return from the job
// cache, while it goes on waiting for others. A read has no time limit as long as it brings
// something.
//
// Guarantee: every return that reached the event stream while Run was waiting, or that the job
// cache holds when a minion is about to be called silent, is handed to the caller exactly once.
package gather
