// Package gather publishes a job and collects its returns, as Salt's local client does.
//
// Lives here: the algorithm: who is expected, when silence is asked about with saltutil.find_job,
// when to stop; batches (a window over the minions that answer a ping) and who has a function.
//
// Does not: reach a master (interface Master), print (package cli), or keep returns (package
// jobcache).
//
// An event that was trimmed (max_event_size) or lost costs one read of that return from the job
// cache, beside the waiting. Reads have no limit in time while they bring something.
//
// Guarantee: every return that reached the event stream while Run was waiting, or that the job
// cache holds when a minion is about to be called silent, is handed to the caller exactly once.
package gather
