// Package hosted joins the functions that this program has with those that Salt's loader has in
// Python.
//
// Lives here: who answers which function, ext_pillar and renderer: a site's own module first, then
// package modules, then Salt's; the functions of one pillar and their child; what Python code asks
// back of the master.
//
// Does not: run Python (package pythonhost), compile pillars (package pillar).
package hosted
