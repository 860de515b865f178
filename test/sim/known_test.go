//go:build knownbugs

package sim

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"clustermaster/test/knownbug"
)

var (
	bug = flag.String("bug", "", "look for this bug alone")
	put = flag.String("put", "", "put this bug back for all tests")
)

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(300) // a quarter of the time went into collections
	knownbug.Put(knownbug.Bug(*put))
	os.Exit(m.Run())
}

// shows are words of what a run says when it finds a bug. Other words are those of another defect.
var shows = map[knownbug.Bug][]string{
	knownbug.RingNoSync:       {" was acknowledged; ", "; acknowledged is ", "promised are"},
	knownbug.LogNoSync:        {"two leaders in term", "two votes of", ": there false, acknowledged true", "is not linearizable"},
	knownbug.OrdersRepeat:     {"is not linearizable"},
	knownbug.PartFounds:       {"has founded a cluster"},
	knownbug.StaleReads:       {"is not linearizable"},
	knownbug.TombstonesMerged: {"; acknowledged is 0", " is deleted; the disk of "},
	knownbug.OldDiskMerged:    {"; acknowledged is 0", " is deleted; the disk of "},
	knownbug.Pipelined:        {"does not end within"},
	knownbug.WriteOne:         {" was acknowledged; ", "; acknowledged is ", "promised are", " had left for a newer one"},
	knownbug.NoFence:          {"had left for a newer one"},
	knownbug.ReplayGap:        {"does not start again"},
	knownbug.HangingLeads:     {"although its disk hangs"},
	knownbug.SmallBeats:       {"although its large packets get lost"},
	knownbug.ClonesServe:      {"the clone of"},
	knownbug.RaftTransfers:    {"blocked goroutines remain", "does not end within", "takes no commands then"},
	knownbug.LateDeletions:    {" is deleted; the disk of ", "; acknowledged is 0"},
	knownbug.AloneAnew:        {" below the quorum, although ", " was acknowledged; ", "; acknowledged is ", "promised are"},
}

// TestKnownBug puts known bugs back one by one, and counts the seeds until a run finds each. A bug
// that no run finds fails the test, and so does a run that fails in another way than by the bug.
func TestKnownBug(t *testing.T) {
	most := uint64(1000)
	if *seeds > 0 {
		most = uint64(*seeds)
	}
	if *bug != "" && !slices.Contains(knownbug.All, knownbug.Bug(*bug)) {
		t.Fatalf("-bug=%s: not one of %q", *bug, knownbug.All)
	}
	for _, b := range knownbug.All {
		if *bug != "" && string(b) != *bug {
			continue
		}
		t.Run(string(b), func(t *testing.T) {
			for seed := uint64(1); seed <= most; seed++ {
				wrong := apart(t, seed, b)
				if len(wrong) == 0 || strings.HasPrefix(wrong[0], "too little") {
					continue
				}
				at := slices.IndexFunc(wrong, func(w string) bool {
					return slices.ContainsFunc(shows[b], func(words string) bool { return strings.Contains(w, words) })
				})
				if at < 0 {
					t.Errorf("seed %d fails, but not as with %s: %s", seed, b, wrong[0])
					continue
				}
				if without := apart(t, seed, ""); len(without) > 0 {
					t.Errorf("seed %d fails without %s too: %s", seed, b, without[0])
				}
				t.Logf("%s: found by seed %d: %s (%d faults)", b, seed, wrong[at], len(wrong))
				return
			}
			t.Errorf("%s: not found by %d seeds", b, most)
		})
	}
}

// apart runs a seed in a process of its own, which a bug may end, and returns what is wrong.
func apart(t *testing.T, seed uint64, b knownbug.Bug) (wrong []string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestSeeds$", "-test.count", "1", "-scenes",
		fmt.Sprintf("-seed=%d", seed), "-put="+string(b))
	cmd.Env = append(os.Environ(), "CLUSTERMASTER_LONG=1") // deletions are forgotten in long runs only
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	mark := fmt.Sprintf("seed %d: ", seed)
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		line := lines.Text()
		if _, fault, is := strings.Cut(line, mark); is && !strings.Contains(line, " of fake time in ") {
			wrong = append(wrong, fault)
		} else if strings.HasPrefix(line, "panic: ") {
			wrong = append(wrong, line)
		}
	}
	if len(wrong) == 0 {
		t.Fatalf("seed %d: %v\n%s", seed, err, out)
	}
	return wrong
}
