// Package targettest is a world of synthetic minions and some hundred targets among them, for
// tests.
//
// Lives here: the minions, what is known of them, and the targets. Does not: say who is meant; Salt
// does, in the test of package target, and the tests of other packages compare with that one.
package targettest
