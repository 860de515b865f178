package statesync

// Drift is an item that was changed on a master since its last sync.
type Drift struct {
	Scope Scope
	Path  string // a folder ends with a slash
	What  string // one of the words below
}

// The kinds of drift.
const (
	DriftEdited  = "edited"
	DriftAdded   = "added"
	DriftDeleted = "deleted"
	DriftBlocked = "blocked" // not changed itself, but what it is in, or what is in it, is drift
)

// Report is what an install did on one master, or would do.
type Report struct {
	Tree    Tree
	Node    string
	Seq     uint64 // of the head that this master has now
	Added   int    // items
	Changed int
	Deleted int
	Bytes   int64   // fetched from other masters for it
	Seconds float64 // Sync: from its beginning until this master had said its last word
	Kept    int     // items that were replaced or removed and kept aside

	KeptIn  []string // folders that they are in, below the roots
	Drift   []Drift  // at most maxListed
	Drifted int      // how many in all
	// with Test: what would be done, "+ env:root path" and so on; at most maxListed
	Changes []string
	Missing []Scope  // roots that this master's config does not have
	Skipped []string // what is on this master and is not synced, or not in full; at most maxListed
	Away    bool     // it can't be reached, and catches up by itself when it is back
	Error   string   // why nothing, or not all, was done; empty when all is well
}

// maxListed bounds the lists in a report.
const maxListed = 1000

func (r *Report) addDrift(d Drift) {
	r.Drifted++
	if len(r.Drift) < maxListed {
		r.Drift = append(r.Drift, d)
	}
}

func (r *Report) skip(s Scope, text string) {
	if len(r.Skipped) < maxListed {
		r.Skipped = append(r.Skipped, s.String()+" "+text)
	}
}

// items is how many were touched.
func (r *Report) items() int { return r.Added + r.Changed + r.Deleted }

func (r *Report) addChange(sign string, s Scope, path string) {
	if len(r.Changes) < maxListed {
		r.Changes = append(r.Changes, sign+" "+s.String()+" "+path)
	}
}
