// Package orchestrate compiles SLS files into states and runs them on the master, for salt-run
// state.orchestrate.
//
// Lives here: Salt's state compiler (salt/state.py and salt/utils/requisite.py, Salt 3008):
// rendering with includes, extend and exclude; high data and its errors; requisites in all forms,
// low chunks and their order; the run of the chunks with requisites, retries, conditions, parallel
// states, listeners, pauses and events; all bounds.
//
// Does not: the functions that states call (Functions: packages statemodules and hosted), templates
// (package render), pillars (package pillar), execution modules (package modules), or who asked
// (package runner).
//
// Guarantee: whatever an SLS tree holds, a compile ends within bounded memory and time with low
// chunks or with error texts, and a run ends soon after its context does.
package orchestrate
