// Package hosted combines this program's functions with the Python functions of Salt's loader.
//
// Lives here: the choice of the module for each function, ext_pillar and renderer: a site's own
// first, then package modules, then Salt's; the functions of one pillar and their child; answers to
// what Python code asks of the master.
//
// Does not: run Python (package pythonhost), compile pillars (package pillar).
package hosted
