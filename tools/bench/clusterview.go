package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/value"
)

// ringFigures are what /metrics says of one master's copies.
type ringFigures struct {
	records float64 // on its disk
	pending float64 // own partitions still to be filled
	owed    float64 // hints for absent masters
	fetched float64 // bytes of records fetched from other masters since its start
	blobs   float64 // bytes of roots fetched from other masters since its start
}

// figures asks /metrics of a master.
func (m *masterProcess) figures(ctx context.Context) (ringFigures, error) {
	v, err := m.metrics(ctx)
	if err != nil {
		return ringFigures{}, err
	}
	f := ringFigures{
		records: v["clustermaster_ring_records"],
		pending: v["clustermaster_ring_pending_partitions"], owed: v["clustermaster_ring_hints"],
		fetched: v["clustermaster_ring_transfer_bytes_total"],
		blobs:   v["clustermaster_statesync_fetched_bytes_total"],
	}
	for _, name := range []string{"clustermaster_ring_records",
		"clustermaster_ring_pending_partitions", "clustermaster_ring_hints",
		"clustermaster_ring_transfer_bytes_total", "clustermaster_statesync_fetched_bytes_total"} {
		if _, ok := v[name]; !ok {
			return f, fmt.Errorf("read metrics of %s: %s is missing", m.id, name)
		}
	}
	return f, nil
}

// metrics is what /metrics of a master says: values by name and labels, as they are written there.
func (m *masterProcess) metrics(ctx context.Context) (map[string]float64, error) {
	client := &http.Client{Timeout: RequestPatience,
		Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://%s:%d/metrics", m.host, healthPort+1), nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s for metrics: %w", m.id, err)
	}
	r, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s for metrics: %w", m.id, err)
	}
	defer r.Body.Close()
	values := make(map[string]float64)
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		name := lines.Text()[:at]
		if values[name], err = strconv.ParseFloat(lines.Text()[at+1:], 64); err != nil {
			return nil, fmt.Errorf("read metric %s of %s: %w", name, m.id, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read metrics of %s: %w", m.id, err)
	}
	return values, nil
}

// order runs a function of salt-run, which must succeed.
func order(ctx context.Context, client *operator.Client, fun string, kwargs value.Map,
	args ...any) (value.Map, error) {
	r, err := client.Run(ctx, operator.RunRequest{Fun: fun, Args: args, Kwargs: kwargs},
		func(string, any) {})
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", fun, err)
	}
	v, ok := r.Return.(value.Map)
	if !ok || !r.Success {
		return nil, fmt.Errorf("run %s: it returned %v", fun, r.Return)
	}
	return v, nil
}

// clusterView is what cluster.members and cluster.ring_info say.
type clusterView struct {
	at              time.Time
	members         []string // ids, voters and learners
	voters, ring    []string // ids
	transfers       int      // masters that still have to fetch records
	hints           float64
	underReplicated float64
}

func look(ctx context.Context, client *operator.Client) (clusterView, error) {
	members, err := order(ctx, client, "cluster.members", nil)
	if err != nil {
		return clusterView{}, err
	}
	ring, err := order(ctx, client, "cluster.ring_info", nil)
	if err != nil {
		return clusterView{}, err
	}
	v := clusterView{
		at: time.Now(), voters: list(members, "voters"), ring: list(ring, "nodes"),
		hints: number(ring, "hints_pending"), underReplicated: number(ring, "under_replicated"),
	}
	v.members = slices.Concat(v.voters, list(members, "learners"))
	transfers, _ := ring.Get("transfers")
	moving, _ := transfers.([]any)
	v.transfers = len(moving)
	return v, nil
}

// settled says whether the records lie where the ring of these masters wants them.
func (v *clusterView) settled(masters []*masterProcess) bool {
	if len(v.ring) != len(masters) || v.transfers > 0 || v.hints > 0 || v.underReplicated > 0 {
		return false
	}
	for _, m := range masters {
		if !slices.Contains(v.ring, m.id) {
			return false
		}
	}
	return true
}

func list(m value.Map, key string) []string {
	v, _ := m.Get(key)
	items, _ := v.([]any)
	var out []string
	for _, item := range items {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func number(m value.Map, key string) float64 {
	v, _ := m.Get(key)
	switch n := v.(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}
