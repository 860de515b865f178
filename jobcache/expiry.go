package jobcache

import (
	"time"

	"clustermaster/ringstore"
	"clustermaster/wire"
)

// ahead is how far in the future the time in a job id may lie and still count: clocks differ.
const ahead = time.Hour

// expiry says when the records of a job go. For a job id that is a time it follows from the id alone (exact), so all
// masters give all records of the job the same expiry and the ring store finds them without a search. For other ids,
// and for ids of long ago or of tomorrow, it counts from now.
func (c *Cache) expiry(jid string) (at time.Time, exact bool) {
	if c.keep <= 0 {
		return time.Time{}, true
	}
	now := c.now()
	if t, ok := jidTime(jid); ok && t.Add(c.keep).After(now) && t.Before(now.Add(ahead)) {
		return t.Add(c.keep).Truncate(time.Second).Add(time.Second), true
	}
	return now.Add(c.keep), false
}

// jidTime reads the time that a job id carries, UTC.
func jidTime(jid string) (time.Time, bool) {
	if !wire.IsJID(jid) {
		return time.Time{}, false
	}
	t, err := time.Parse("20060102150405.000000", jid[:14]+"."+jid[14:20])
	return t, err == nil
}

func (c *Cache) put(space ringstore.Space, jid, name string, value []byte, first bool) ringstore.Put {
	at, exact := c.expiry(jid)
	return ringstore.Put{Space: space, Name: name, Value: value, Expires: at, Exact: exact, First: first}
}
