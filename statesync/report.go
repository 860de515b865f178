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
	DriftBlocked = "blocked" // unchanged itself, but its folder or contents drifted
)

// Report describes what an install did on one master, or would do.
type Report struct {
	Tree    Tree
	Node    string
	Seq     uint64 // number of this master's present head
	Added   int    // items
	Changed int
	Deleted int
	Bytes   int64   // fetched from other masters for this install
	Seconds float64 // of Sync: from its beginning until this master finished
	Kept    int     // items that were replaced or removed, and kept aside

	KeptIn  []string // folders with the kept items, below the roots
	Drift   []Drift  // at most maxListed
	Drifted int      // number of all drifted items
	// with Test: planned changes, "+ env:root path" and so on; at most maxListed
	Changes []string
	Missing []Scope  // roots that this master's configuration lacks
	Skipped []string // entries that are not synced, or not fully; at most maxListed
	Away    bool     // it is unreachable, and catches up automatically when it is back
	Error   string   // why nothing, or not everything, was done; "": no error
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

// items returns the number of changed items.
func (r *Report) items() int { return r.Added + r.Changed + r.Deleted }

func (r *Report) addChange(sign string, s Scope, path string) {
	if len(r.Changes) < maxListed {
		r.Changes = append(r.Changes, sign+" "+s.String()+" "+path)
	}
}
