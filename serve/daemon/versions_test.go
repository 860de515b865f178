package daemon

import (
	"regexp"
	"strings"
	"testing"
)

// TestVersions: the sections and lines are those of Salt's report.
func TestVersions(t *testing.T) {
	t.Parallel()
	got := Versions()
	for _, want := range []string{"Go Version:\n", "\n            Go: go1", "\nSystem Versions:\n",
		"\n       machine: ", "\n        system: Linux\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	line := regexp.MustCompile(`^(|[A-Z][A-Za-z ]+:| +[^ ]+: .*)$`)
	for l := range strings.SplitSeq(got, "\n") {
		if !line.MatchString(l) {
			t.Errorf("line %q", l)
		}
	}
	for long, short := range map[string]string{
		"github.com/hashicorp/raft-boltdb/v2": "hashicorp/raft-boltdb", "golang.org/x/sys": "x/sys",
		"gopkg.in/yaml.v3": "gopkg.in/yaml.v3", "clustermaster": "clustermaster",
	} {
		if got := shortModule(long); got != short {
			t.Errorf("%s is shown as %s", long, got)
		}
	}
}
