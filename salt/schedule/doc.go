// Package schedule runs the entries of the option schedule: runner functions at their times, once
// per period in the cluster.
//
// Lives here: reading entries, when an entry is due (a pure function of entry, state and clock;
// salt/utils/schedule.py, Salt 3008.3), the leader's loop that claims runs, the event
// __schedule_return.
//
// Does not: keep the state (cluster/fsm), run functions (told through Deps).
//
// Guarantee: a run begins only after its claim was applied to the Raft state, by compare-and-set on
// the entry's turn. So no period is run twice, however often leaders change, and even if several
// masters believe that they lead.
package schedule
