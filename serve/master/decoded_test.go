package master

import (
	"context"
	"net/netip"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"clustermaster/value"
	"clustermaster/wire"
)

// fakeSender is a connection that lends so much memory.
type fakeSender struct {
	room, held int64
	vouched    int
}

func (s *fakeSender) Hold(n int64) bool {
	s.held += n
	return s.held <= s.room
}

func (s *fakeSender) Vouch() { s.vouched++ }

// Memory for a request is asked for before it is decoded, and only one that an accepted minion
// sealed makes its connection known.
func TestDecodedSize(t *testing.T) {
	k := newKit(t, func(o *Options, _ *Deps) { o.MaxDecoded = 1 << 20 })
	m := k.accept("m1")
	events := func(n int) value.Map {
		empty := make([]any, n)
		for i := range empty {
			empty[i] = []any{}
		}
		return dict("cmd", "_minion_event", "id", "m1", "tag", "t", "data", dict("list", empty))
	}
	other := *m
	other.sender.Tok = must(wire.TokenSalt(clusterKey()))
	const badLoad = "\xa8bad load"
	for _, tt := range []struct {
		name    string
		payload []byte
		room    int64
		reason  string // of the refusal
		closed  bool   // instead of a reply
		held    bool
		vouched int
	}{
		{"honest", m.seal(events(100), nonce()), 1 << 20, "", false, true, 1},
		{"no memory", m.seal(events(10_000), nonce()), 1 << 10, "memory", true, true, 1},
		{"larger than any may be", m.seal(events(100_000), nonce()), 1 << 30, "decoded_size", false,
			false, 1},
		{"wrong token", other.seal(events(100), nonce()), 1 << 20, "token", false, true, 1},
		{"without the key", sealedWith(m, wire.Key{}), 1 << 20, "session_key", false, false, 0},
		{"nobody's", must(wire.ClearRequest(dict("cmd", "ping"), 3)), 1 << 20, "", false, true, 0},
	} {
		before := refusedFor(t, k, tt.reason)
		s := &fakeSender{room: tt.room}
		reply, err := k.Handle(context.Background(),
			Request{Payload: tt.payload, Remote: netip.MustParseAddrPort("192.0.2.1:1234"),
				Sender: s})
		if err != nil || (reply == nil) != tt.closed || s.vouched != tt.vouched ||
			(s.held > 0) != tt.held {
			t.Errorf("%s: reply %q, %v, vouched %d, held %d", tt.name, reply, err, s.vouched,
				s.held)
		}
		if tt.reason == "" {
			continue
		}
		if string(reply) != badLoad && !tt.closed {
			t.Errorf("%s: reply %q", tt.name, reply)
		}
		if n := refusedFor(t, k, tt.reason) - before; n != 1 {
			t.Errorf("%s: counted %v times as %s", tt.name, n, tt.reason)
		}
	}
}

// listing has many files.
type listing []string

func (l listing) Serve(context.Context, string, value.Map) (any, error) { return []string(l), nil }

// TestListedSize: the list of files counts before its reply is sealed.
func TestListedSize(t *testing.T) {
	t.Parallel()
	files := make(listing, 10_000)
	for i := range files {
		files[i] = "a/file/of/the/site"
	}
	k := newKit(t, func(_ *Options, d *Deps) { d.Files = files })
	m := k.accept("m1")
	for room, answered := range map[int64]bool{100_000: false, 400_000: true} {
		before := refusedFor(t, k, "memory")
		reply, err := k.Handle(t.Context(), Request{Payload: m.seal(dict("cmd", "_file_list"), nonce()),
			Remote: netip.MustParseAddrPort("192.0.2.1:1234"), Sender: &fakeSender{room: room}})
		if (err == nil && reply != nil) != answered || (refusedFor(t, k, "memory") > before) == answered {
			t.Errorf("%d bytes: a reply of %d, %v", room, len(reply), err)
		}
	}
}

// sealedWith is a request in m's name under another key.
func sealedWith(m *fakeMinion, key wire.Key) []byte {
	return must(m.sender.SealRequest(wire.NewCrypticle(key),
		dict("cmd", "_pillar", "id", m.sender.ID), nonce(), time.Now()))
}

func refusedFor(t *testing.T, k *kit, reason string) float64 {
	t.Helper()
	var out dto.Metric
	if err := k.metrics.refused.WithLabelValues(reason).Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue()
}
