package conformance

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clustermaster/test/e2e"
)

// orderWiring has options of what minions are sent with a job.
func orderWiring() wiring {
	return wiring{
		name: "orders",
		set: `master_id: east
salt_cp_chunk_size: 10
`,
		files: map[string]string{"source": strings.Repeat("x", 15)},
		looks: []wired{
			{options: "master_id", ask: func(t *testing.T, m *subject) string {
				c := m.signIn(t, "ordered", 3)
				s := subscribe(t, m.Addr, "")
				_, load := s.job(t, c.got.AES, publish(t, m.Master, "-L", "ordered", "test.ping"))
				id, _ := load.Get("master_id")
				return fmt.Sprint(id)
			}},
			{options: "salt_cp_chunk_size", ask: firstPiece},
		},
	}
}

// firstPiece is the first piece of a file that salt-cp sends to a minion, which does not answer.
func firstPiece(t *testing.T, m *subject) string {
	m.signIn(t, "copied", 3)
	cp := filepath.Join(filepath.Dir(programs(t, m.kind).Salt), "salt-cp")
	e2e.Command(t, cp, "-c", m.ConfDir, "-t", "1", "--chunked", "--no-compression", "copied",
		m.path("source"), "/nowhere")
	r := m.Runner(t, "--out=json", "jobs.list_jobs", "search_function=cp.recv_chunked")
	var jobs map[string]struct{ Arguments []any }
	if err := json.Unmarshal([]byte(r.Stdout), &jobs); err != nil || len(jobs) == 0 {
		t.Fatalf("%v in %v", err, r)
	}
	first := slices.Min(slices.Collect(maps.Keys(jobs))) // Salt also sends the next to such a minion
	return fmt.Sprint(jobs[first].Arguments)
}
