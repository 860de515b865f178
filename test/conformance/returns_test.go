package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/tools/simminion"
)

// TestLargeReturns: salt prints in full what 100 minions return at once, and salt-run shows it on
// any of three masters. First 1 MB each, below max_event_size, while events are lost on their way;
// then 3 MB, where events are trimmed and no single message could hold the job.
func TestLargeReturns(t *testing.T) {
	const size = 1_000_000
	minions := e2e.Amount(100)
	three := e2e.NewCluster(t, e2e.ClusterOptions{Masters: 3,
		Extra: "auto_accept: True\ntimeout: 60\n"})
	three.StartMasters(t)
	key, err := simminion.KeyOf(keyNumber(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	// Texts that can't be confused: the id, then random letters.
	text := func(id string, n int) string {
		r := rand.New(rand.NewPCG(1, uint64(len(id))+uint64(n)))
		b := []byte(id + ":")
		for len(b) < n {
			b = append(b, 'a'+byte(r.IntN(26)))
		}
		return string(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	ended := make(chan error, len(three.Masters))
	want := make(map[string]bool)
	for n, m := range three.Masters {
		fleet := new(simminion.Fleet)
		for i := n; i < minions; i += len(three.Masters) {
			id := fmt.Sprintf("large-%03d", i)
			minion, err := simminion.New(simminion.Config{ID: id, Key: key,
				Master: hostPort(m.Addr, e2e.RequestPort), AcceptanceWait: time.Second,
				Functions: map[string]simminion.Func{"large.text": func(_ context.Context,
					c simminion.Call) (any, error) {
					n, _ := c.Args[0].(int64)
					return text(id, int(n)), nil
				}}})
			if err != nil {
				t.Fatal(err)
			}
			fleet.Minions = append(fleet.Minions, minion)
			want[id] = true
		}
		go func() { ended <- fleet.Run(ctx) }()
		if err := fleet.WaitReady(ctx); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		cancel()
		for range three.Masters {
			<-ended
		}
	})
	check := func(t *testing.T, got map[string]string, n int) {
		t.Helper()
		for id := range want {
			if v := got[id]; v != text(id, n) {
				t.Errorf("%s: %d bytes %.60q, want %d", id, len(v), v, n)
			}
		}
		if len(got) != minions {
			t.Errorf("%d minions in the answer, want %d", len(got), minions)
		}
	}
	for i, n := range []int{size, 3 * size} {
		t.Run(fmt.Sprintf("%d_bytes", n), func(t *testing.T) {
			m := three.Masters[i]
			r := m.Salt(t, "--out=json", "--show-jid", "large-*", "large.text", fmt.Sprint(n))
			head, body, _ := strings.Cut(r.Stdout, "\n")
			jid, found := strings.CutPrefix(head, "jid: ")
			if r.Code != 0 || !found {
				t.Fatalf("exit %d, stdout %.300q, stderr %.300s", r.Code, r.Stdout, r.Stderr)
			}
			got := make(map[string]string)
			for printed := json.NewDecoder(strings.NewReader(body)); printed.More(); {
				if err := printed.Decode(&got); err != nil {
					t.Fatal(err)
				}
			}
			check(t, got, n)
			got = make(map[string]string)
			if err := three.Masters[2].RunnerJSON(t, &got, "jobs.lookup_jid", jid); err != nil {
				t.Fatalf("%.300v", err)
			}
			check(t, got, n)
			var job map[string]struct {
				Result map[string]struct {
					Return string `json:"return"`
				}
			}
			if err := three.Masters[0].RunnerJSON(t, &job, "jobs.print_job", jid); err != nil {
				t.Fatalf("%.300v", err)
			}
			got = make(map[string]string)
			for id, r := range job[jid].Result {
				got[id] = r.Return
			}
			check(t, got, n)
		})
	}
}
