package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClosedChannel shows why minions of 3007.15 with several masters need return_retry_tries: 1
// (docs/migrate.md): a request that is repeated on a closed channel makes the minion hang, without
// any master. If it no longer does, the option can go.
func TestClosedChannel(t *testing.T) {
	long(t)
	t.Parallel()
	for _, tt := range []struct {
		release, tries string
		hangs          bool
	}{
		{"3007.15", "3", true},
		{"3007.15", "1", false},
		{"3008.3", "3", false},
	} {
		t.Run(tt.release+"_"+tt.tries, func(t *testing.T) {
			dir := Folder(t)
			p := Process{Name: "closedchannel.py", Output: filepath.Join(dir, "output.log")}
			ShowOnFailure(t, p.Output)
			p.Start(t, filepath.Join(filepath.Dir(Theirs(t, tt.release).Master), "python"),
				filepath.Join("testdata", "closedchannel.py"), FreeBase(t, 1).Master(1), dir, tt.tries)
			said := func(text string) bool { return strings.Contains(tail(p.Output, 1<<20), text) }
			Eventually(t, 60*time.Second, "the request ends", func() error {
				if !said("ended: ") {
					return errors.New("not yet")
				}
				return nil
			})
			if tt.hangs {
				Throughout(t, 10*time.Second, "it hangs", func() error {
					if said("collected") {
						return errors.New("it collected its garbage")
					}
					return nil
				})
				return
			}
			Eventually(t, 30*time.Second, "garbage is collected", func() error {
				if !said("collected") {
					return errors.New("not yet")
				}
				return nil
			})
		})
	}
}
