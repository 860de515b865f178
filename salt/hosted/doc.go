// Package hosted combines this program's functions with the Python functions of Salt's loader.
//
// Lives here: the choice of the module for each function, ext_pillar, renderer, runner and state: a
// site's own first, then the native one, then Salt's; the functions of one pillar or of one run of
// states, and their child; answers to what Python code asks of the master.
//
// Does not: run Python (package pythonhost), compile pillars (package pillar) or states (package
// orchestrate).
package hosted
