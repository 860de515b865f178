package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// healed is the time in which a cluster must be in order again after the last fault.
const healed = 60 * time.Second

// cluster is masters on a network that can be cut.
type cluster struct {
	*e2e.Cluster
	net network
}

// newCluster starts masters, with room for two more, and waits until all are ready.
func newCluster(t *testing.T, masters int, extra string) *cluster {
	t.Helper()
	c := prepareCluster(t, masters, extra)
	c.StartMasters(t)
	return c
}

// prepareCluster is newCluster without starting them.
func prepareCluster(t *testing.T, masters int, extra string) *cluster {
	t.Helper()
	n := newNetwork(t, masters+2)
	return &cluster{e2e.NewCluster(t, e2e.ClusterOptions{Masters: masters, Network: n,
		Extra: extra}), n}
}

// joiner is another master, not started, which counts among the masters from now on.
func (c *cluster) joiner(t *testing.T, change func(config string) string) *e2e.Master {
	t.Helper()
	m := c.Stranger(t, change)
	c.Masters = append(c.Masters, m)
	return m
}

// peers changes a configuration to name only these peers.
func peers(addrs ...string) func(config string) string {
	return func(config string) string {
		return peersLine.ReplaceAllString(config, "cluster_peers: ["+strings.Join(addrs, ", ")+"]")
	}
}

var peersLine = regexp.MustCompile(`(?m)^cluster_peers: .*$`)

func same(config string) string { return config }

// others are all masters but these.
func (c *cluster) others(not ...*e2e.Master) []*e2e.Master {
	return slices.DeleteFunc(slices.Clone(c.Masters),
		func(m *e2e.Master) bool { return slices.Contains(not, m) })
}

// members is the answer of cluster.members.
type members struct {
	Voters   []string `json:"voters"`
	Learners []string `json:"learners"`
	Leader   string   `json:"leader_id"`
	Version  int64    `json:"membership_version"`
	Term     int64    `json:"term"`
	Peers    map[string]struct {
		State string `json:"state"`
		Ready bool   `json:"ready"`
		Addr  string `json:"address"`
	} `json:"peers"`
}

func membersOf(t testing.TB, m *e2e.Master) (members, error) {
	t.Helper()
	var v members
	err := m.RunnerJSON(t, &v, "cluster.members")
	return v, err
}

// ids of masters, sorted.
func ids(masters []*e2e.Master) []string {
	var list []string
	for _, m := range masters {
		list = append(list, m.ID)
	}
	slices.Sort(list)
	return list
}

// oneHistory waits until all these masters report the same about keys and members: one leader,
// exactly these members, all ready.
func oneHistory(t *testing.T, masters ...*e2e.Master) {
	t.Helper()
	e2e.Eventually(t, healed, "one history on "+strings.Join(ids(masters), ", "), func() error {
		var first members
		var firstKeys string
		for i, m := range masters {
			v, err := membersOf(t, m)
			if err != nil {
				return err
			}
			all := slices.Concat(v.Voters, v.Learners)
			slices.Sort(all)
			if !slices.Equal(all, ids(masters)) {
				return fmt.Errorf("%s has the members %v", m.ID, all)
			}
			for id, p := range v.Peers {
				if !p.Ready {
					return fmt.Errorf("%s calls %s %s", m.ID, id, p.State)
				}
			}
			keys := m.Key(t, "-F", "--out=json")
			if keys.Code != 0 || keys.Stderr != "" {
				return fmt.Errorf("%v", keys)
			}
			if i == 0 {
				first, firstKeys = v, withoutLocal(t, keys.Stdout)
				if v.Leader == "" {
					return fmt.Errorf("%s knows no leader", m.ID)
				}
				continue
			}
			if v.Leader != first.Leader || v.Version != first.Version || v.Term != first.Term ||
				!slices.Equal(v.Voters, first.Voters) {
				return fmt.Errorf("%s says %+v, %s says %+v", masters[0].ID, first, m.ID, v)
			}
			if text := withoutLocal(t, keys.Stdout); text != firstKeys {
				return fmt.Errorf("%s has the keys\n%s%s has\n%s", masters[0].ID, firstKeys,
					m.ID, text)
			}
		}
		return nil
	})
}

// withoutLocal removes a master's own keys from the output of salt-key -F.
func withoutLocal(t testing.TB, text string) string {
	t.Helper()
	var lists map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &lists); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	delete(lists, "local")
	b, err := json.MarshalIndent(lists, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// keyState is the list in which salt-key -L on a master has an id, or "", or why it does not tell.
func keyState(t testing.TB, m *e2e.Master, id string) string {
	t.Helper()
	lists, err := m.Keys(t)
	if err != nil {
		return err.Error()
	}
	for state, list := range lists {
		if slices.Contains(list, id) {
			return state
		}
	}
	return ""
}

// refused expects a command to end with an error whose text contains these words.
func refused(t testing.TB, r e2e.Result, words ...string) {
	t.Helper()
	text := r.Stdout + r.Stderr
	if r.Code == 0 {
		t.Errorf("was to be refused\n%v", r)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("doesn't say %q\n%v", w, r)
		}
	}
}

// succeeds expects a command to end well.
func succeeds(t testing.TB, r e2e.Result) {
	t.Helper()
	if r.Code != 0 {
		t.Errorf("was to succeed\n%v", r)
	}
}

// logged waits until a master's log, from an offset on, has a line with all these words, and
// returns the line.
func logged(t testing.TB, m *e2e.Master, from int64, words ...string) (line string) {
	t.Helper()
	e2e.Eventually(t, healed, m.ID+" logs "+strings.Join(words, " ... "), func() error {
		line = logLine(t, m, from, words...)
		if line == "" {
			return fmt.Errorf("no such line")
		}
		return nil
	})
	return line
}

func logLine(t testing.TB, m *e2e.Master, from int64, words ...string) string {
	t.Helper()
	b, err := os.ReadFile(m.Log)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b[min(from, int64(len(b))):])) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return line
		}
	}
	return ""
}

// logSize is the present length of a master's log.
func logSize(m *e2e.Master) int64 {
	st, err := os.Stat(m.Log)
	if err != nil {
		return 0
	}
	return st.Size()
}

// hostPort is one of a master's ports.
func hostPort(m *e2e.Master, port int) string {
	return net.JoinHostPort(m.Addr,
		strconv.Itoa(port))
}

// seed is CLUSTERMASTER_SEED, or a random one. It is printed.
func seed(t testing.TB) *rand.Rand {
	t.Helper()
	n := rand.Uint64()
	if s := os.Getenv("CLUSTERMASTER_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CLUSTERMASTER_SEED=%d", n)
	return rand.New(rand.NewPCG(n, 1))
}

// long reports whether the long forms were asked for.
func long() bool { return os.Getenv("CLUSTERMASTER_LONG") != "" }

// within is a context for one call, for which others' load lengthens the limit.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := e2e.Deadline(t, d)
	t.Cleanup(cancel)
	return ctx
}

// equal fails the test if two values differ.
func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
