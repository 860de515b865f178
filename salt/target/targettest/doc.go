// Package targettest makes synthetic minions and some hundred targets for tests.
//
// Lives here: the minions, their data, and the targets. Does not: say which minions a target means.
// Salt does that in the test of package target; the tests of other packages compare with package
// target.
package targettest
