// Package target finds out which minions a target means.
//
// Lives here: Salt's target types (glob, pcre, list, grain, grain_pcre, pillar, pillar_pcre,
// pillar_exact, ipcidr, compound, nodegroup) as a master evaluates them, with Python's fnmatch and
// re semantics; a Question, which says what a target asks of grains and pillar. The master that
// holds the data judges it there, and reads only the parts that it needs.
//
// Does not: know where keys, grains and pillar lie (interface Source), or decide for a minion:
// every minion matches again, so a master's answer only says which minions to wait for.
//
// Guarantee: whatever the expression, Match neither panics nor runs long. An invalid expression
// matches no minion. It returns an error only when its Source does.
package target
