package master

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/cluster"
	"clustermaster/keystore"
	"clustermaster/salt/target"
	"clustermaster/serve/event"
	"clustermaster/serve/event/eventtest"
	"clustermaster/store/jobcache"
	"clustermaster/value"
	"clustermaster/wire"
)

// Keys that all tests share: making RSA keys is slow.
var (
	clusterKey = sync.OnceValue(func() *wire.PrivateKey { return mustKey() })
	minionKey  = sync.OnceValue(func() *wire.PrivateKey { return mustKey() })
	otherKey   = sync.OnceValue(func() *wire.PrivateKey { return mustKey() })
)

func mustKey() *wire.PrivateKey {
	k, err := wire.GeneratePrivateKey(2048)
	if err != nil {
		panic(err)
	}
	return k
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// fakeKeys is the key store as the table of 1-channel.md 6.2 has it, in memory.
type fakeKeys struct {
	mu       sync.Mutex
	state    map[string]string // accept, pend, reject
	pub      map[string]string
	denied   map[string][]string
	index    map[string]uint64
	offers   int
	err      error
	revoked  []string
	lastSeen keystore.Policy
}

func newFakeKeys() *fakeKeys {
	return &fakeKeys{state: map[string]string{}, pub: map[string]string{},
		denied: map[string][]string{}, index: map[string]uint64{}}
}

func (k *fakeKeys) set(id, state, pub string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state[id], k.pub[id], k.index[id] = state, pub, k.index[id]+1
}

func (k *fakeKeys) get(id string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state[id]
}

func (k *fakeKeys) accepted(id string) (*keystore.AcceptedKey, bool) {
	if k.state[id] != "accept" {
		return nil, false
	}
	pub, err := wire.ParsePublicKey(k.pub[id])
	if err != nil {
		pub = nil
	}
	return &keystore.AcceptedKey{Pub: pub, PubSum: sha256.Sum256([]byte(k.pub[id])),
		Index: k.index[id]}, true
}

func (k *fakeKeys) Accepted(id string) (*keystore.AcceptedKey, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.accepted(id)
}

func (k *fakeKeys) Offer(_ context.Context, id, pub string, p keystore.Policy) (keystore.Outcome,
	error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.offers++
	k.lastSeen = p
	if k.err != nil {
		return keystore.Outcome{}, k.err
	}
	accept := func() (keystore.Outcome, error) {
		if k.state[id] != "accept" || k.pub[id] != pub {
			k.state[id], k.pub[id], k.index[id] = "accept", pub, k.index[id]+1
		}
		a, _ := k.accepted(id)
		return keystore.Outcome{Act: "accept", Key: a}, nil
	}
	deny := func() (keystore.Outcome, error) {
		if !slices.Contains(k.denied[id], pub) {
			k.denied[id] = append(k.denied[id], pub)
		}
		return keystore.Outcome{Act: "denied", Ret: false}, nil
	}
	same := k.pub[id] == pub
	switch state := k.state[id]; {
	case p.Open:
		return accept()
	case state == "reject":
		return keystore.Outcome{Act: "reject", Ret: false}, nil
	case state == "accept" && !same:
		return deny()
	case state == "accept":
		return accept()
	case p.Auto == keystore.AutoReject:
		k.state[id], k.pub[id] = "reject", pub
		return keystore.Outcome{Act: "reject", Ret: false}, nil
	case state == "pend" && !same:
		return deny()
	case p.Auto == keystore.AutoAccept:
		return accept()
	}
	k.state[id], k.pub[id] = "pend", pub
	return keystore.Outcome{Act: "pend", Ret: true}, nil
}

func (k *fakeKeys) Revoke(_ context.Context, id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.revoked = append(k.revoked, id)
	delete(k.state, id)
	return nil
}

// fakeCluster has secrets that a test may change.
type fakeCluster struct {
	mu      sync.Mutex
	secrets *cluster.Secrets
	looks   atomic.Int64 // how often the secrets were asked for
	// readIndex is what happens when the newest keys and secrets are asked for.
	readIndex func() error
	ahead     time.Duration // of this machine's clock
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{secrets: &cluster.Secrets{
		AES: []cluster.AESEpoch{{Epoch: 1, Key: must(wire.NewKey())}},
		Session: []cluster.SessionEpoch{{Epoch: 1,
			Secret: []byte("0123456789abcdef0123456789abcdef")}},
	}}
}

func (c *fakeCluster) ClusterKey() *wire.PrivateKey { return clusterKey() }

func (c *fakeCluster) Now() time.Time { return time.Now().Add(c.ahead) }

func (c *fakeCluster) ReadIndex(context.Context) error {
	if c.readIndex == nil {
		return nil
	}
	return c.readIndex()
}

func (c *fakeCluster) Secrets() *cluster.Secrets {
	c.looks.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.secrets
}

func (c *fakeCluster) set(s *cluster.Secrets) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = s
}

// retire ends the grace of all session secrets but the newest.
func (c *fakeCluster) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secrets = &cluster.Secrets{AES: c.secrets.AES, Session: c.secrets.Session[:1]}
}

// rotate makes new secrets; the old ones stay behind them.
func (c *fakeCluster) rotate(aes, session bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &cluster.Secrets{AES: c.secrets.AES, Session: c.secrets.Session}
	if aes {
		next.AES = append([]cluster.AESEpoch{{Epoch: next.AES[0].Epoch + 1,
			Key: must(wire.NewKey())}}, next.AES...)
	}
	if session {
		secret := must(wire.NewKey())
		next.Session = append([]cluster.SessionEpoch{{Epoch: next.Session[0].Epoch + 1,
			Secret: secret[:32]}}, next.Session...)
	}
	c.secrets = next
}

// fakeJobs is the job cache.
type fakeJobs struct {
	mu      sync.Mutex
	loads   map[string]value.Map
	minions map[string][]string
	returns map[string]map[string]jobcache.Return
	peers   map[string]string
	nocache map[string]bool
	ends    map[string]string
	asked   int // for nocache
	offered int // accounts of jobs that came with returns
	err     error
}

func newFakeJobs() *fakeJobs {
	return &fakeJobs{loads: map[string]value.Map{}, minions: map[string][]string{},
		returns: map[string]map[string]jobcache.Return{}, peers: map[string]string{},
		nocache: map[string]bool{}, ends: map[string]string{}}
}

func (j *fakeJobs) SaveNoCache(_ context.Context, jid string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.nocache[jid] = true
	return j.err
}

func (j *fakeJobs) NoCache(_ context.Context, jid string) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked++
	return j.nocache[jid], j.err
}

func (j *fakeJobs) SaveEndTime(_ context.Context, jid, end string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ends[jid] = end
	return j.err
}

func (j *fakeJobs) SaveLoad(_ context.Context, jid string, load value.Map, minions []string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	j.loads[jid] = load
	j.minions[jid] = append(j.minions[jid], minions...)
	return nil
}

func (j *fakeJobs) SaveAccount(_ context.Context, jid, _ string, load value.Map) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	if _, ok := j.loads[jid]; !ok {
		j.loads[jid] = load
	}
	return nil
}

func (j *fakeJobs) SaveMinions(_ context.Context, jid, source string, ids []string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.minions[jid] = append(j.minions[jid], ids...)
	return j.err
}

func (j *fakeJobs) SaveReturn(_ context.Context, jid, id string, r jobcache.Return,
	account value.Map) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return false, j.err
	}
	if account != nil {
		j.offered++
		if _, ok := j.loads[jid]; !ok {
			j.loads[jid] = account
		}
	}
	if j.returns[jid] == nil {
		j.returns[jid] = map[string]jobcache.Return{}
	}
	if _, ok := j.returns[jid][id]; ok {
		return false, nil
	}
	j.returns[jid][id] = r
	return true, nil
}

func (j *fakeJobs) SavePeer(_ context.Context, jid, id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.peers[jid] = id
	return j.err
}

func (j *fakeJobs) PeerOf(_ context.Context, jid string) (string, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id, ok := j.peers[jid]
	return id, ok, nil
}

func (j *fakeJobs) Owner(_ context.Context, jid string) (jobcache.Owner, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	load, ok := j.loads[jid]
	kwargs, _ := field(load, "kwargs").(value.Map)
	return jobcache.Owner{User: load.String("user"), Eauth: kwargs.String("eauth")}, ok, j.err
}

func (j *fakeJobs) EachReturn(_ context.Context, jid string,
	fn func(string, jobcache.Return) error) error {
	j.mu.Lock()
	returns := maps.Clone(j.returns[jid])
	j.mu.Unlock()
	for id, r := range returns {
		if err := fn(id, r); err != nil {
			return err
		}
	}
	return nil
}

func (j *fakeJobs) Returned(_ context.Context, jid string) ([]string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []string
	for id := range j.returns[jid] {
		out = append(out, id)
	}
	return out, nil
}

// fakeData is the minions' data, and the source of targets.
type fakeData struct {
	incomplete string // said of grains and pillar
	groups     value.Map
	keys       *fakeKeys
	mu         sync.Mutex
	grains     map[string]value.Map
	pillar     map[string]value.Map
	mines      map[string]value.Map
	err        error
}

func newFakeData(keys *fakeKeys) *fakeData {
	return &fakeData{keys: keys, grains: map[string]value.Map{}, pillar: map[string]value.Map{},
		mines: map[string]value.Map{}}
}

func (d *fakeData) SetGrains(_ context.Context, id string, grains value.Raw) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.grains[id] = must(grains.Map())
	return d.err
}

func (d *fakeData) SetPillar(_ context.Context, id, _ string, pillar value.Map) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pillar[id] = pillar
	return d.err
}

func (d *fakeData) MergeMine(_ context.Context, id string, data value.Map, clear bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if clear {
		d.mines[id] = nil
	}
	for _, p := range data {
		d.mines[id] = d.mines[id].Set(p.Key.(string), p.Value)
	}
	return d.err
}

func (d *fakeData) MineValues(_ context.Context, fun string, ids []string,
	hold func(int64) error) (map[string]value.Raw, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]value.Raw{}
	for _, id := range ids {
		if v, ok := d.mines[id].Get(fun); ok {
			out[id] = must(value.Pack(v))
			if err := hold(int64(len(out[id]))); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (d *fakeData) DeleteMine(_ context.Context, id, fun string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mines[id] = d.mines[id].Without(fun)
	return nil
}

func (d *fakeData) FlushMine(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mines, id)
	return nil
}

func (d *fakeData) AcceptedIDs() []string {
	d.keys.mu.Lock()
	defer d.keys.mu.Unlock()
	var out []string
	for id, s := range d.keys.state {
		if s == "accept" {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func (d *fakeData) Ask(_ context.Context, q target.Question, fn func(string, target.Hits)) (string,
	error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := q.Judge()
	for id, grains := range d.grains {
		fn(id, j.Minion(false, grains))
	}
	for id, pillar := range d.pillar {
		fn(id, j.Minion(true, pillar))
	}
	return d.incomplete, nil
}

func (d *fakeData) Nodegroup(name string) (any, bool) { return d.groups.Get(name) }
func (d *fakeData) DataCache() bool                   { return true }

var _ target.Source = (*fakeData)(nil)

// fakeSubscribers records publications.
type fakeSubscribers struct {
	mu       sync.Mutex
	pubs     []Publication
	at       []time.Time
	released []string
	losses   []time.Time
	onPub    func(Publication)
}

func (s *fakeSubscribers) Publish(p Publication) int {
	s.mu.Lock()
	s.pubs, s.at = append(s.pubs, p), append(s.at, time.Now())
	f := s.onPub
	s.mu.Unlock()
	if f != nil {
		f(p)
	}
	return 1
}

func (s *fakeSubscribers) Release(jid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = append(s.released, jid)
}

func (s *fakeSubscribers) Losses() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.losses)
}

func (s *fakeSubscribers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pubs)
}

func (s *fakeSubscribers) get(i int) Publication {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pubs[i]
}

// kit is a master with everything below it in memory.
type kit struct {
	*Master
	t       testing.TB
	keys    *fakeKeys
	cluster *fakeCluster
	jobs    *fakeJobs
	data    *fakeData
	subs    *fakeSubscribers
	bus     *event.Bus
	events  *event.Subscription
}

func newKit(t testing.TB, change func(*Options, *Deps)) *kit {
	t.Helper()
	k := &kit{t: t, keys: newFakeKeys(), cluster: newFakeCluster(), jobs: newFakeJobs(),
		subs: &fakeSubscribers{}, bus: event.NewBus(0, nil, nil)}
	k.data = newFakeData(k.keys)
	deps := Deps{
		Keys: k.keys, Cluster: k.cluster, Jobs: k.jobs, Data: k.data, Targets: k.data, Bus: k.bus,
		Mesh:        eventtest.Alone(k.bus),
		Subscribers: k.subs,
	}
	opts := DefaultOptions()
	if change != nil {
		change(&opts, &deps)
	}
	m, err := New(deps, opts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.Master, m.newest.pause = m, 0 // whatever a test has refused is not shared
	k.events = k.bus.Subscribe("")
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		k.events.Close()
	})
	return k
}

// accept makes id an accepted minion with the shared key.
func (k *kit) accept(id string) *fakeMinion {
	k.keys.set(id, "accept", minionKey().Public().Text())
	return k.minion(3, id)
}

func (k *kit) handle(payload []byte) []byte {
	k.t.Helper()
	reply, err := k.Handle(context.Background(),
		Request{Payload: bytes.Clone(payload), Remote: netip.MustParseAddrPort("192.0.2.1:1234")})
	if err != nil {
		k.t.Fatalf("no reply: %v", err)
	}
	return reply
}

// text unpacks a reply that is one value.
func (k *kit) value(payload []byte) any {
	k.t.Helper()
	v, err := value.Unpack(k.handle(payload))
	if err != nil {
		k.t.Fatalf("reply does not unpack: %v", err)
	}
	return v
}

// event waits for the next event and returns its data.
func (k *kit) event(tag string) value.Map {
	k.t.Helper()
	select {
	case e := <-k.events.C:
		if e.Tag != tag {
			k.t.Fatalf("event %s, want %s", e.Tag, tag)
		}
		m, err := e.Map()
		if err != nil {
			k.t.Fatal(err)
		}
		return m
	case <-time.After(5 * time.Second):
		k.t.Fatalf("no event %s within 5 s", tag)
	}
	return nil
}

// noEvent fires a mark and expects to see it next.
func (k *kit) noEvent() {
	k.t.Helper()
	k.bus.Fire("mark", value.Map{})
	k.event("mark")
}

// fakeMinion is the minion's side of the channel.
type fakeMinion struct {
	k      *kit
	sender wire.Sender
	key    *wire.PrivateKey
}

func (k *kit) minion(version int, id string) *fakeMinion {
	return &fakeMinion{k: k, key: minionKey(),
		sender: wire.Sender{Version: version, ID: id, Tok: token()}}
}

var token = sync.OnceValue(func() []byte { return must(wire.TokenSalt(minionKey())) })

func nonce() string { return must(wire.NewNonce()) }

// crypt is the key that this minion seals with now.
func (m *fakeMinion) crypt() *wire.Crypticle {
	s := m.k.cluster.Secrets()
	if m.sender.Version < 3 {
		return wire.NewCrypticle(s.AES[0].Key)
	}
	a, _ := m.k.keys.Accepted(m.sender.ID)
	return wire.NewCrypticle(wire.DeriveSession(s.Session[0].Secret, m.sender.ID, a.PubSum,
		a.Index))
}

func (m *fakeMinion) seal(load value.Map, n string) []byte {
	return must(m.sender.SealRequest(m.crypt(), load, n, time.Now()))
}

// call sends a sealed request and returns the value of the sealed reply.
func (m *fakeMinion) call(load value.Map) any {
	m.k.t.Helper()
	n, c := "", m.crypt()
	if m.sender.Version > 1 {
		n = nonce()
	}
	raw, err := wire.OpenReply(c, m.k.handle(must(m.sender.SealRequest(c, load, n, time.Now()))), n)
	if err != nil {
		m.k.t.Fatalf("reply to %v: %v", load, err)
	}
	return must(raw.Unpack())
}

// dict makes a map from keys and values in turn.
func dict(kv ...any) value.Map {
	var m value.Map
	for i := 0; i+1 < len(kv); i += 2 {
		m = append(m, value.Pair{Key: kv[i], Value: kv[i+1]})
	}
	if m == nil {
		m = value.Map{}
	}
	return m
}

func same(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// field is a value of a map, nil if it is absent.
func field(m value.Map, key string) any {
	v, _ := m.Get(key)
	return v
}
