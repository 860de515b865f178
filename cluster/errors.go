package cluster

import (
	"errors"
	"fmt"
	"strings"

	"clustermaster/cluster/fsm"
)

// ErrNoQuorum is the target for errors.Is that matches a *NoQuorumError.
var ErrNoQuorum = errors.New("no quorum")

// ErrNotFounded says that this master does not belong to a cluster yet.
var ErrNotFounded = errors.New("not a member of a cluster yet")

// ErrTooLarge says that a command does not fit into an entry of the log.
var ErrTooLarge = fmt.Errorf("a change has at most %d bytes; make it in parts", maxEntry)

// NoQuorumError says that the cluster can't agree on anything now, and what to do.
type NoQuorumError struct {
	Reachable int      // voters that this master reaches, itself included if it is one
	Voters    int      // of the cluster
	Missing   []string // ids of voters that it does not reach; empty if it reaches a majority
	// id of the last known leader, if this master reaches a majority but not that leader
	Leader string
	cause  error
}

func (e *NoQuorumError) Error() string {
	if e.Leader != "" {
		return fmt.Sprintf("%s, the leader as far as this master knows, does not answer it (%d of %d voters are reachable); "+
			"try again in a few seconds; if that does not help, start %[1]s or repair the network from here to it",
			e.Leader, e.Reachable, e.Voters)
	}
	if len(e.Missing) == 0 {
		return fmt.Sprintf("no leader was elected yet (%d of %d voters are reachable); try again in a few seconds", e.Reachable, e.Voters)
	}
	return fmt.Sprintf("no quorum: %d of %d voters reachable, missing %s; start the missing masters or repair their network, "+
		"if they are lost for good, see salt-run cluster.recover", e.Reachable, e.Voters,
		strings.Join(e.Missing, ", "))
}

// Is makes errors.Is(err, ErrNoQuorum) true.
func (e *NoQuorumError) Is(target error) bool { return target == ErrNoQuorum }

// Unwrap returns the error of the last attempt.
func (e *NoQuorumError) Unwrap() error { return e.cause }

// UnknownOutcomeError says that an order may have been carried out, or may still be: its answer was
// lost.
type UnknownOutcomeError struct {
	Check string // the command that shows the outcome
	cause error
	token string // of the command's fsm.Once; "": it has none
}

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("%v. It is not known whether this was done, and it may still happen; check with %s", e.cause, e.Check)
}

// Unwrap returns the error of the last attempt.
func (e *UnknownOutcomeError) Unwrap() error { return e.cause }

// thinQuorumError says that an order was refused because it would leave too few voters in contact
// for a quorum.
type thinQuorumError struct{ text string }

func (e *thinQuorumError) Error() string { return e.text }

// Is makes errors.Is(err, ErrNoQuorum) true.
func (e *thinQuorumError) Is(target error) bool { return target == ErrNoQuorum }

// RefusedError is a command that the state refused.
type RefusedError struct{ Reason fsm.Refusal }

func (e *RefusedError) Error() string { return "refused: " + e.Reason.String() }

// refused turns a refusal into an error.
func refused(r fsm.Result) error {
	if r.Refused == "" {
		return nil
	}
	return &RefusedError{r.Refused}
}
