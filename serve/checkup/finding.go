package checkup

// Level is how bad a finding is.
type Level string

// The levels, worst first.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Notice  Level = "notice"
	Good    Level = "ok"
)

// Finding is what one check found.
type Finding struct {
	Check  string `json:"check"`            // ports, names, clock, ...
	Level  Level  `json:"level"`            // ok if nothing is wrong
	Text   string `json:"text"`             // the fact
	Remedy string `json:"remedy,omitempty"` // what to do
}

// Report is what one master finds at its own place.
type Report struct {
	Master   string    `json:"master"`
	Release  string    `json:"release"`
	Findings []Finding `json:"findings"`
	// Options maps the options that were set, other than secrets and those that differ by nature,
	// to digests.
	Options map[string]string `json:"options"`
	// Roots maps "file_roots base" and the like to the first parts of paths there, and those to
	// digests.
	Roots map[string]map[string]string `json:"roots"`
}
