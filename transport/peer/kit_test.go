package peer

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"clustermaster/test/logtest"
)

// members is a Pins that tests write to.
type members struct {
	mu    sync.Mutex
	spki  map[string][32]byte
	addrs map[string]string
}

func newMembers() *members {
	return &members{spki: make(map[string][32]byte), addrs: make(map[string]string)}
}

func (m *members) add(node string, spki [32]byte, addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spki[node], m.addrs[node] = spki, addr
}

func (m *members) remove(node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.spki, node)
	delete(m.addrs, node)
}

func (m *members) NodeBySPKI(spki [32]byte) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for node, s := range m.spki {
		if s == spki {
			return node, true
		}
	}
	return "", false
}

func (m *members) SPKIOf(node string) ([32]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.spki[node]
	return s, ok
}

func (m *members) AddrOf(node string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.addrs[node]
	return a, ok
}

// master is one port with a running gRPC server (heartbeat and health).
type master struct {
	*Port
	t    *testing.T
	node string
	key  *NodeKey
	reg  *prometheus.Registry
	logs *logtest.Buffer
	stop func() // ends Serve and waits
}

// newPort makes a port that nothing serves yet.
func newPort(t *testing.T, pins Pins, node string, tune ...func(*Config)) *master {
	t.Helper()
	key, err := LoadNodeKey(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &master{t: t, node: node, key: key, reg: prometheus.NewRegistry(), logs: &logtest.Buffer{}}
	cfg := Config{
		Listen: "127.0.0.1:0", Key: key, Pins: pins, Registerer: m.reg,
		Log: slog.New(slog.NewTextHandler(m.logs, nil)),
	}
	for _, f := range tune {
		f(&cfg)
	}
	m.Port, err = New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// serve runs the port and its gRPC server until the test ends.
func (m *master) serve() *master {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	srv := grpc.NewServer(m.ServerOptions()...)
	m.RegisterRPC(srv)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := m.Serve(ctx); err != nil {
			m.t.Errorf("serve %s: %v", m.node, err)
		}
	})
	lis := m.RPCListener()
	wg.Go(func() { _ = srv.Serve(lis) }) // ends with the listener's error
	m.stop = sync.OnceFunc(func() {
		cancel()
		srv.Stop()
		wg.Wait()
	})
	m.t.Cleanup(func() {
		m.stop()
		if m.t.Failed() {
			m.t.Logf("log of %s:\n%s", m.node, m.logs)
		}
	})
	return m
}

// newMasters makes n masters that know each other, serving.
func newMasters(t *testing.T, n int, tune ...func(*Config)) (*members, []*master) {
	t.Helper()
	pins := newMembers()
	var ms []*master
	for i := range n {
		m := newPort(t, pins, fmt.Sprintf("m%d/%02x", i+1, i+1), tune...)
		pins.add(m.node, m.key.SPKI(), m.Addr().String())
		ms = append(ms, m)
	}
	for _, m := range ms {
		m.serve()
	}
	return pins, ms
}

// ping asks another master's health service over the cached conn.
func (m *master) ping(node string) error {
	cc, err := m.Conn(node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// count sums a metric over the series that have all these label values.
func (m *master) count(name string, values ...string) float64 {
	m.t.Helper()
	families, err := m.reg.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			var have []string
			for _, l := range s.GetLabel() {
				have = append(have, l.GetValue())
			}
			missing := slices.ContainsFunc(values,
				func(v string) bool { return !slices.Contains(have, v) })
			if !missing {
				sum += s.GetCounter().GetValue() + s.GetGauge().GetValue() +
					float64(s.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func (m *master) refusedFor(reason string) float64 {
	return m.count("clustermaster_peer_refused_total", reason)
}

// eventually waits for a condition, 10 s at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestMain lets the test binary be another master, for tests that stop or kill
// a real process.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMaster())
	}
	os.Exit(m.Run())
}
