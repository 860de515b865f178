// Package query reads many records of the ring store: scans, and questions, which the masters that
// hold the records judge.
//
// Lives here: questions to all masters that hold records, and scans of all records of a space, each
// with the coverage of its answer; judging the records on one master's disk for another one, and
// the parts of records that questions read, kept in memory. Does not: the meaning of a question
// (its Compiler has it), reading and writing of single places, who is a member (package ringstore).
//
// DESIGN.md of package ringstore has the choices.
package query
