package operator

import "sync"

// perUser bounds what users have in use at a time.
type perUser struct {
	each int // of one user
	all  int // of all together; 0: no bound

	mu    sync.Mutex // guards the rest
	n     int
	byUID map[uint32]int
}

// enter counts one more for a user. It returns false if that exceeds a bound.
func (u *perUser) enter(uid uint32) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.byUID[uid] >= u.each || u.all > 0 && u.n >= u.all {
		return false
	}
	if u.byUID == nil {
		u.byUID = make(map[uint32]int)
	}
	u.n++
	u.byUID[uid]++
	return true
}

func (u *perUser) leave(uid uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.n--
	if u.byUID[uid]--; u.byUID[uid] == 0 {
		delete(u.byUID, uid)
	}
}
