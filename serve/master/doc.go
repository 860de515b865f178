// Package master answers minions' requests and publishes operators' jobs.
//
// Lives here: the checks of every request (envelope, keys, token, identity, age), signing in, the
// handlers of Salt's minion commands with their exact replies, publishing to the subscribers of all
// masters, and sending a job again after a master was lost.
//
// Does not: know how bytes travel (transport/minion), how Salt packs and seals them (wire), which
// keys are accepted (keystore), where jobs and data are stored (jobcache, miniondata), or who is a
// member (cluster). It calls all of these through the small interfaces in deps.go.
//
// Guarantee: every request is answered or, if its effect is not on stable storage, its connection
// is closed, so that the minion tries again. For an id without an accepted key nothing is stored,
// and nothing is done beyond a look-up.
package master
