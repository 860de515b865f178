package fsm

import "time"

// RestorePart stores lists of a backup for the Restore that follows the last part. So no log entry
// is large however many keys there are, and everything is restored at one index or not at all.
// Parts come in order. Number 0 with another token discards the stored parts; a part without any
// list does only that.
type RestorePart struct {
	Token  string     `msgpack:"token"` // random, identifies the restore
	Number int        `msgpack:"number"`
	Keys   []Key      `msgpack:"keys"`
	Denied []DeniedOf `msgpack:"denied"`
	Bars   []Bar      `msgpack:"bars"`
	Tokens []Token    `msgpack:"tokens,omitempty"`
	At     time.Time  `msgpack:"at"`
}

// DeniedOf holds the denied keys of an id.
type DeniedOf struct {
	ID   string   `msgpack:"id"`
	Keys []Denied `msgpack:"keys"`
}

// Op implements Command.
func (*RestorePart) Op() Op { return OpRestorePart }

func (c *RestorePart) apply(s *State, _ uint64) Result {
	begun := len(s.parts) > 0 && s.parts[0].Token == c.Token
	switch {
	case s.cluster.UUID == "":
		return Result{Refused: RefusedNotFounded}
	case c.Token == "" || c.Number < 0:
		return Result{Refused: RefusedInvalid}
	case begun && c.Number < len(s.parts):
		return Result{} // a repeat
	case begun && c.Number == len(s.parts):
		s.parts = append(s.parts[:len(s.parts):len(s.parts)], *c) // snapshots share the old one
	case c.Number > 0:
		return Result{Refused: RefusedStale}
	case len(c.Keys)+len(c.Denied)+len(c.Bars)+len(c.Tokens) == 0:
		s.parts = nil
	default:
		s.parts = []RestorePart{*c}
	}
	return Result{Changed: true}
}

// collecting reports whether exactly this many parts of a restore are stored.
func (s *State) collecting(token string, parts int) bool {
	return len(s.parts) == parts && s.parts[0].Token == token
}

// Unfinished returns since when parts of an unfinished restore are stored; false if none are.
func (s *State) Unfinished() (since time.Time, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.parts) == 0 {
		return time.Time{}, false
	}
	return s.parts[len(s.parts)-1].At, true
}

// part returns the lists of a backup.
func (v Saved) part() *RestorePart {
	p := &RestorePart{Keys: v.Keys, Bars: v.Bars, Tokens: v.Tokens}
	for _, id := range sortedNames(v.Denied) {
		p.Denied = append(p.Denied, DeniedOf{id, v.Denied[id]})
	}
	return p
}

// overhead is the greatest size of a record without its texts, in bytes.
const overhead = 200

// Split makes the commands that restore a backup: parts of about limit bytes, and the Restore that
// ends them. A single record may be larger than limit.
func (v Saved) Split(token string, at time.Time, limit int) (parts []*RestorePart, end *Restore) {
	all := v.part()
	size := limit
	next := func(n int) *RestorePart {
		if size += n + overhead; size > limit {
			size = n + overhead
			parts = append(parts, &RestorePart{Token: token, Number: len(parts), At: at})
		}
		return parts[len(parts)-1]
	}
	for _, k := range all.Keys {
		p := next(len(k.ID) + len(k.Pub))
		p.Keys = append(p.Keys, k)
	}
	for _, d := range all.Denied {
		n := len(d.ID)
		for _, k := range d.Keys {
			n += len(k.Pub) + overhead
		}
		p := next(n)
		p.Denied = append(p.Denied, d)
	}
	for _, b := range all.Bars {
		p := next(len(b.ID) + len(b.JoinKey))
		p.Bars = append(p.Bars, b)
	}
	for _, t := range all.Tokens {
		p := next(len(t.Owner) + len(t.Data))
		p.Tokens = append(p.Tokens, t)
	}
	v.Keys, v.Denied, v.Bars, v.Tokens = nil, nil, nil, nil
	return parts, &Restore{Saved: v, At: at, Token: token, Parts: len(parts)}
}
