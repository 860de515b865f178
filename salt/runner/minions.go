package runner

import (
	"context"
	"maps"
	"slices"
	"time"

	"clustermaster/value"
)

// Ask is a job for minions on behalf of a runner function.
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

// Answers is the result of an Ask.
type Answers struct {
	// says how much of the minions' data could not be read, if the target may have missed some;
	// else ""
	Incomplete string
	JID        string
	Minions    []string // the minions that were expected to answer
	Returned   map[string]Answer
	// Silent did not return; also ids of a list that have no accepted key. NoReturn is the text in
	// place of the return of each.
	Silent   []string
	NoReturn string
	// Refused says in Salt's words that nothing was sent, as the target names an unknown nodegroup;
	// else ""
	Refused string
}

// ask asks for the user of a call, and says on standard error what the target may have missed.
func ask(ctx context.Context, c *Call, minions Asker, a Ask) (Answers, error) {
	a.User = c.User
	answers, err := minions.Ask(ctx, a)
	if err == nil && answers.Incomplete != "" {
		c.Warn(answers.Incomplete + untargeted)
	}
	return answers, err
}

// all maps each minion to its return, or to NoReturn: Salt's local client's answer to a job.
func (a Answers) all() value.Map {
	all := make(value.Map, 0, len(a.Returned)+len(a.Silent))
	for _, id := range slices.Sorted(maps.Keys(a.Returned)) {
		all = append(all, value.Pair{Key: id, Value: a.Returned[id].Return})
	}
	for _, id := range a.Silent {
		all = append(all, value.Pair{Key: id, Value: a.NoReturn})
	}
	return all
}

// Asker publishes a job and gathers its returns with Salt's algorithm (package gather). A target
// without minions is not an error: Minions is empty.
type Asker interface {
	Ask(ctx context.Context, a Ask) (Answers, error)
}
