// Package acl decides what users other than root and the master's own may order.
//
// Lives here: the options publisher_acl, publisher_acl_blacklist and sudo_acl, the lists of
// external_auth, and the matching of functions, arguments and minions, runners and wheels against
// them, as in salt.acl and salt.utils.minions.CkMinions. Does not: identify callers (package
// operator), check passwords and tokens (package auth), resolve targets (package target), order
// anything (package master).
//
// Guarantee: an order that no entry allows is refused. Of several functions in one order each must
// be allowed.
package acl
