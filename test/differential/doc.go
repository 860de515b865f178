// Package differential compares the parts of this program that repeat a library of Salt with that
// library, on inputs that Go's fuzzer makes: msgpack, targets, YAML, Jinja and globs.
//
// Lives here: a process of Salt's Python (testdata/libraries.py) that answers what the library
// does, one for each test process; a fuzz target for each part; the inputs that once showed a
// difference (testdata/fuzz), which plain tests compare again; the rules that leave out known
// differences, each with a name and the place that documents it. Does not: compare masters
// (packages conformance and commands).
package differential
