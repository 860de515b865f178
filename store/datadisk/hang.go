package datadisk

import (
	"fmt"
	"time"
)

// hangsAfter is how long a write may take before the disk counts as hanging. Busy disks need
// seconds for one; a disk whose controller or network is gone needs minutes, or never answers.
const hangsAfter = 10 * time.Second

// HangError says that a write has not ended.
type HangError struct {
	Dir   string
	Since time.Time // when the write began
}

func (e *HangError) Error() string {
	return fmt.Sprintf("disk: a write at %s began %v ago and has not ended; look at that disk (dmesg, iostat -x)",
		e.Dir, time.Since(e.Since).Round(time.Second))
}

// Is makes errors.Is find ErrUnusable.
func (e *HangError) Is(target error) bool { return target == ErrUnusable }

// Write notes that a write to the disk begins, one that is durable when it ends. The caller runs
// ended then.
func (r *Disk) Write() (ended func()) {
	began := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay[&began] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.underWay, &began)
	}
}

// oldest returns how long the oldest write under way has taken; 0: there is none.
func (r *Disk) oldest() (age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for began := range r.underWay {
		age = max(age, time.Since(*began))
	}
	return age
}

func (r *Disk) lookAtWrites() {
	age := r.oldest()
	if age <= hangsAfter {
		if e := r.hang.Swap(nil); e != nil {
			r.log.Info("the disk writes again: this master accepts everything", "path", r.dir,
				"hung_for", time.Since(e.Since).Round(time.Second))
		}
		return
	}
	e := &HangError{Dir: r.dir, Since: time.Now().Add(-age)}
	if r.hang.Swap(e) == nil {
		r.log.Error("the disk hangs: this master takes no copies of data, pushed files, synced roots or backups, leads no cluster, and is not ready, "+
			"until the write that hangs has ended; look at that disk (dmesg, iostat -x)", "path", r.dir,
			"since", e.Since)
	}
}
