// Package acl decides what users other than root and the master's own may order.
//
// Lives here: the options publisher_acl, publisher_acl_blacklist and sudo_acl, and the matching of functions, arguments and
// minions against them, as in salt.acl and salt.utils.minions.CkMinions.
// Does not: learn who calls (package operator), resolve targets (package target), order anything (package master).
//
// Guarantee: what no entry allows is refused; of several functions in one order each must be allowed.
package acl
