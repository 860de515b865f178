package jobcache

import (
	"time"

	"clustermaster/store/ringstore"
	"clustermaster/wire"
)

// ahead is how far in the future the time of a job id may be, because clocks differ.
const ahead = time.Hour

// expiry returns when the records of a job expire. For a job id that is a recent time it depends
// only on the id (exact), so all masters give all records of the job the same expiry, and the ring
// store finds them without a search. For other ids, and for times long ago or too far ahead, it
// counts from now.
func (c *Cache) expiry(jid string) (at time.Time, exact bool) {
	if c.keep <= 0 {
		return time.Time{}, true
	}
	now := c.now()
	if t, ok := wire.ParseJID(jid); ok && t.Add(c.keep).After(now) && t.Before(now.Add(ahead)) {
		return t.Add(c.keep).Truncate(time.Second).Add(time.Second), true
	}
	return now.Add(c.keep), false
}

func (c *Cache) put(space ringstore.Space, jid, name string, value []byte,
	first bool) ringstore.Put {
	at, exact := c.expiry(jid)
	return ringstore.Put{Space: space, Name: name, Value: value, Expires: at, Exact: exact,
		First: first}
}
