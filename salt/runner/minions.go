package runner

import (
	"context"
	"time"

	"clustermaster/value"
)

// Ask is a job that a runner function wants run on minions.
type Ask struct {
	Tgt     any // text or list
	TgtType string
	Fun     string
	Args    []any
	Kwargs  value.Map
	Ret     string
	JID     string
	User    string
	Timeout time.Duration // 0: the master's timeout option
	Gather  time.Duration // 0: the master's gather_job_timeout option
}

// Answer is what one minion returned.
type Answer struct {
	Return  any
	Retcode int
}

// Answers is the outcome of an Ask.
type Answers struct {
	// not empty if minions may have been missed: what of their data could not be read
	Incomplete string
	JID        string
	Minions    []string // that were expected to answer
	Returned   map[string]Answer
}

// Asker publishes a job and gathers its returns with Salt's algorithm (package gather). No matching
// minion is not an error: Minions is empty.
type Asker interface {
	Ask(ctx context.Context, a Ask) (Answers, error)
}
