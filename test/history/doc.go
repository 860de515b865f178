// Package history records what clients of a cluster did and saw, and checks whether one machine
// could have answered so.
//
// Lives here: the record, and what keys and facts about members are as machines. Does not: clients
// and faults.
package history
