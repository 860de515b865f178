// Package master answers what minions ask and publishes what operators order.
//
// Lives here: the checks of every request (envelope, keys, token, identity, age), signing in, the
// handlers of Salt's minion commands with their exact replies, publishing to the subscribers of all
// masters, and sending a job again after a master was lost.
//
// Does not: know how bytes travel (transport/minion), how Salt packs and seals them (wire), which
// keys are accepted (keystore), where jobs and data lie (jobcache, miniondata), or who is a member
// (cluster). Everything below is asked through the small interfaces in deps.go.
//
// Guarantee: every request is answered or, if its effect is not on stable storage, its connection
// is closed, so that the minion tries again; nothing is stored, and no cost but a look-up is paid,
// for an id without an accepted key.
package master
