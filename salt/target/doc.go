// Package target finds out which minions a target means.
//
// Lives here: Salt's target types (glob, pcre, list, grain, grain_pcre, pillar, pillar_pcre,
// pillar_exact, ipcidr, compound, nodegroup) as a master evaluates them, with Python's fnmatch and
// re semantics; what a target asks of grains and pillar as a Question, which is judged where the
// data lies, reading no more of it than the parts that it is about.
//
// Does not: know where keys, grains and pillar lie (interface Source), or decide for a minion:
// every minion matches again by itself, so a master's answer only says for whom to wait.
//
// Guarantee: whatever the expression, Match neither panics nor runs long; one that is invalid
// matches nobody. It returns an error only when its Source does.
package target
