// Package query reads many records of the ring store: scans, and questions that are judged where
// the records lie.
//
// Lives here: a question put to all masters that hold records, and a scan of all records of a
// space, each with what its answer covers; judging the records on one master's disk for another
// one, and the parts of records that questions read, kept in memory. Does not: what a question
// means (a Compiler says), reading and writing of single places, who is a member (package
// ringstore).
//
// DESIGN.md of package ringstore has the choices.
package query
