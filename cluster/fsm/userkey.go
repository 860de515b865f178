package fsm

import "maps"

// The commands about keys of users.
const OpSetUserKeys Op = 48

// maxUserKeys bounds the users with keys. Masters' administrators configure them, a few each.
const maxUserKeys = 4096

// Bounds of a user's key in bytes. It is text of wire.Key, which has 76.
const (
	maxUserName   = 255
	maxUserKeyLen = 256
)

// UserKey is the key by which a user of a master's machine proves his identity in clear commands.
// It is the same on every master.
type UserKey struct {
	User string `msgpack:"user"`
	Key  string `msgpack:"key"`
}

// SetUserKeys sets the keys of users. Without Replace a user with a key keeps it: if masters
// propose keys for one user at the same time, the first decides.
type SetUserKeys struct {
	Keys    []UserKey `msgpack:"keys"`
	Replace bool      `msgpack:"replace"`
}

// Op implements Command.
func (*SetUserKeys) Op() Op { return OpSetUserKeys }

func (c *SetUserKeys) apply(s *State, _ uint64) Result {
	if s.cluster.UUID == "" {
		return Result{Refused: RefusedNotFounded}
	}
	next := maps.Clone(s.userKeys)
	for _, k := range c.Keys {
		if k.User == "" || len(k.User) > maxUserName || k.Key == "" || len(k.Key) > maxUserKeyLen {
			return Result{Refused: RefusedInvalid}
		}
		if _, has := next[k.User]; has && !c.Replace {
			continue
		}
		next[k.User] = k.Key
	}
	if len(next) > maxUserKeys {
		return Result{Refused: RefusedInvalid}
	}
	if maps.Equal(next, s.userKeys) {
		return Result{}
	}
	s.userKeys = next // never changed in place: snapshots share it
	return Result{Changed: true, change: Change{Secrets: true}}
}

// UserKey returns the key of a user; false if the user has none.
func (s *State) UserKey(user string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	key, ok := s.userKeys[user]
	return key, ok
}

// UserKeys returns all keys of users, sorted by name.
func (s *State) UserKeys() []UserKey {
	s.mu.RLock()
	keys := s.userKeys
	s.mu.RUnlock()
	out := make([]UserKey, 0, len(keys))
	for _, user := range sortedNames(keys) {
		out = append(out, UserKey{user, keys[user]})
	}
	return out
}
