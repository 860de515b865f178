package fsm

import (
	"maps"
	"slices"
	"time"
)

// The commands about git remotes have numbers apart from those in command.go.
const (
	OpSetGitRefs Op = 80
	OpChangeGit  Op = 81
)

// Bounds of the agreed state of git remotes.
const (
	maxGitMirrors = 1000
	maxGitRefs    = 10_000 // of one mirror
	maxGitName    = 512    // bytes of a ref or environment
	maxGitBefore  = 5      // former commits kept of a ref
	maxGitPins    = 1000   // of one mirror
	gitKeySize    = 32     // hexadecimal digits
	maxCommit     = 64     // hexadecimal digits of SHA-256
)

// GitRef is a branch or tag and its commit.
type GitRef struct {
	Name   string `msgpack:"name"`
	Commit string `msgpack:"commit"` // hexadecimal
	// Before lists the commits that were served before, the latest first.
	Before []string `msgpack:"before"`
}

// GitPin holds an environment at a commit.
type GitPin struct {
	Env    string    `msgpack:"env"`
	Commit string    `msgpack:"commit"`
	By     string    `msgpack:"by"`
	At     time.Time `msgpack:"at"`
}

// GitMirror is what all masters serve of one git repository.
type GitMirror struct {
	Key    string    `msgpack:"key"` // names URL and refspecs, without secrets
	Seq    uint64    `msgpack:"seq"` // of the last change of refs; 0: never fetched
	At     time.Time `msgpack:"at"`  // of that change
	Refs   []GitRef  `msgpack:"refs"`
	Pins   []GitPin  `msgpack:"pins"`
	Locked bool      `msgpack:"locked"` // the mirror is not fetched
}

// GitMirrors returns all mirrors, sorted by key. Do not write to them.
func (s *State) GitMirrors() []*GitMirror {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*GitMirror, 0, len(s.git))
	for _, key := range slices.Sorted(maps.Keys(s.git)) {
		out = append(out, s.git[key])
	}
	return out
}

// SetGitRefs changes the refs of a mirror. The state refuses it as stale unless Seq is the next
// number. A repeat of the command that made the current refs changes nothing.
type SetGitRefs struct {
	Key  string    `msgpack:"key"`
	Seq  uint64    `msgpack:"seq"`
	Put  []GitRef  `msgpack:"put"` // without Before
	Drop []string  `msgpack:"drop"`
	At   time.Time `msgpack:"at"`
}

// Op implements Command.
func (*SetGitRefs) Op() Op { return OpSetGitRefs }

func (c *SetGitRefs) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if !validGitKey(c.Key) || c.Seq == 0 || len(c.Put) > maxGitRefs ||
		slices.ContainsFunc(c.Put, func(r GitRef) bool {
			return r.Name == "" || len(r.Name) > maxGitName || !validCommit(r.Commit)
		}) {
		return Result{Refused: RefusedInvalid}
	}
	now := s.gitMirror(c.Key)
	switch {
	case c.Seq == now.Seq && c.At.UTC().Equal(now.At):
		return Result{Epoch: c.Seq}
	case c.Seq != now.Seq+1:
		return Result{Refused: RefusedStale}
	case s.git[c.Key] == nil && len(s.git) >= s.most("State.git"):
		return Result{Refused: RefusedFull}
	}
	refs := make(map[string]GitRef, len(now.Refs)+len(c.Put))
	for _, r := range now.Refs {
		refs[r.Name] = r
	}
	for _, name := range c.Drop {
		delete(refs, name)
	}
	for _, r := range c.Put {
		was := refs[r.Name]
		r.Before = nil
		if was.Commit != "" && was.Commit != r.Commit {
			r.Before = append([]string{was.Commit},
				was.Before[:min(len(was.Before), maxGitBefore-1)]...)
		} else {
			r.Before = was.Before
		}
		refs[r.Name] = r
	}
	if len(refs) > maxGitRefs {
		return Result{Refused: RefusedFull}
	}
	next := *now
	next.Seq, next.At = c.Seq, c.At.UTC()
	next.Refs = slices.Grow([]GitRef(nil), len(refs)) // nil if there are none, as tidy has it
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		next.Refs = append(next.Refs, refs[name])
	}
	s.git[c.Key] = &next
	return Result{Changed: true, Epoch: c.Seq, change: Change{Git: true}}
}

// GitAction is what ChangeGit does. The numbers are in the log: append only.
type GitAction uint8

// The actions.
const (
	PinGit    GitAction = 1
	UnpinGit  GitAction = 2
	LockGit   GitAction = 3
	UnlockGit GitAction = 4
)

// ChangeGit pins or unpins an environment of a mirror, or locks the mirror against fetches. A
// Result without Changed says that nothing had to change.
type ChangeGit struct {
	Action GitAction `msgpack:"action"`
	Key    string    `msgpack:"key"`
	Env    string    `msgpack:"env"`
	Commit string    `msgpack:"commit"`
	By     string    `msgpack:"by"`
	At     time.Time `msgpack:"at"`
}

// Op implements Command.
func (*ChangeGit) Op() Op { return OpChangeGit }

func (c *ChangeGit) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	if !validGitKey(c.Key) || len(c.Env) > maxGitName || len(c.By) > maxGitName {
		return Result{Refused: RefusedInvalid}
	}
	next := *s.gitMirror(c.Key)
	at := slices.IndexFunc(next.Pins, func(p GitPin) bool { return p.Env == c.Env })
	switch c.Action {
	case PinGit:
		if c.Env == "" || !validCommit(c.Commit) {
			return Result{Refused: RefusedInvalid}
		}
		if at >= 0 && next.Pins[at].Commit == c.Commit {
			return Result{}
		}
		if at < 0 && len(next.Pins) >= maxGitPins {
			return Result{Refused: RefusedFull}
		}
		pins := slices.DeleteFunc(slices.Clone(next.Pins),
			func(p GitPin) bool { return p.Env == c.Env })
		pins = append(pins, GitPin{c.Env, c.Commit, c.By, c.At.UTC()})
		slices.SortFunc(pins, func(a, b GitPin) int {
			if a.Env < b.Env {
				return -1
			}
			return 1
		})
		next.Pins = pins
	case UnpinGit:
		if at < 0 {
			return Result{}
		}
		next.Pins = slices.Concat(next.Pins[:at], next.Pins[at+1:]) // nil if none is left
	case LockGit, UnlockGit:
		on := c.Action == LockGit
		if next.Locked == on {
			return Result{}
		}
		next.Locked = on
	default:
		return Result{Refused: RefusedInvalid}
	}
	if s.git[c.Key] == nil && len(s.git) >= s.most("State.git") {
		return Result{Refused: RefusedFull}
	}
	s.git[c.Key] = &next
	return Result{Changed: true, change: Change{Git: true}}
}

func (s *State) gitMirror(key string) *GitMirror {
	if m := s.git[key]; m != nil {
		return m
	}
	return &GitMirror{Key: key}
}

// tidy normalizes a mirror that was read, so that equal mirrors have equal bytes. It may share what
// it holds with no other.
func (m *GitMirror) tidy() {
	if len(m.Refs) == 0 {
		m.Refs = nil
	}
	if len(m.Pins) == 0 {
		m.Pins = nil
	}
	if !m.At.IsZero() {
		m.At = m.At.UTC()
	}
	for i := range m.Refs {
		if len(m.Refs[i].Before) == 0 {
			m.Refs[i].Before = nil
		}
	}
	for i := range m.Pins {
		m.Pins[i].At = m.Pins[i].At.UTC()
	}
}

func validGitKey(key string) bool { return len(key) == gitKeySize && isHex(key) }

func validCommit(id string) bool { return (len(id) == 40 || len(id) == 64) && isHex(id) }

func isHex(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return (c < '0' || c > '9') &&
			(c < 'a' || c > 'f')
	})
}
