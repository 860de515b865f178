package gather

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/wire"
)

// simulated is a master with minions that answer after a delay, in virtual time.
type simulated struct {
	minions  map[string]minion
	widen    map[string]time.Duration // ids that a minions event adds, and when
	cached   map[string]time.Duration // returns that reach only the job cache, and when
	mu       sync.Mutex
	subs     map[*stream]string
	began    time.Time
	findJobs int
	wg       sync.WaitGroup
	closed   int
}

type minion struct {
	after   time.Duration // 0: never answers test.ping
	twice   bool
	running time.Duration // how long find_job finds the job
	mute    bool          // does not answer find_job
	broken  bool          // find_job has a retcode
}

type stream struct {
	ch  chan Event
	sim *simulated
}

func (s *stream) C() <-chan Event { return s.ch }
func (s *stream) Close() {
	s.sim.mu.Lock()
	defer s.sim.mu.Unlock()
	delete(s.sim.subs, s)
	s.sim.closed++
}

func (s *simulated) Subscribe(_ context.Context, prefix string) (Events, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &stream{ch: make(chan Event, 100), sim: s}
	s.subs[st] = prefix
	return st, nil
}

func (s *simulated) fire(tag string, data wire.Map) {
	packed, err := wire.Pack(data)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for st, prefix := range s.subs {
		if strings.HasPrefix(tag, prefix) {
			st.ch <- Event{Tag: tag, Data: packed}
		}
	}
}

func (s *simulated) later(d time.Duration, f func()) {
	s.wg.Go(func() {
		time.Sleep(d)
		f()
	})
}

func (s *simulated) Publish(_ context.Context, p Publish) (Published, error) {
	out := Published{JID: p.JID}
	ids, isList := p.Tgt.([]string)
	for id, m := range s.minions {
		if isList && !slices.Contains(ids, id) {
			continue
		}
		out.Minions = append(out.Minions, id)
		data := wire.Map{{Key: "id", Value: id}, {Key: "jid", Value: p.JID}, {Key: "retcode", Value: int64(0)}}
		tag := "salt/job/" + p.JID + "/ret/" + id
		if p.Fun == "saltutil.find_job" {
			ret := wire.Map{}
			if time.Since(s.began) < m.running {
				ret = ret.Set("jid", p.Arg[0])
			}
			if m.broken {
				data = data.Set("retcode", int64(1))
			}
			if !m.mute {
				s.later(10*time.Millisecond, func() { s.fire(tag, data.Set("return", ret)) })
			}
			continue
		}
		if m.after > 0 {
			s.later(m.after, func() {
				s.fire(tag, data.Set("return", true))
				if m.twice {
					s.fire(tag, data.Set("return", false))
				}
			})
		}
	}
	if p.Fun == "saltutil.find_job" {
		s.findJobs++
	} else {
		for id, d := range s.widen {
			s.later(d, func() { s.fire("salt/job/"+p.JID+"/new", wire.Map{{Key: "minions", Value: []any{id}}}) })
		}
	}
	slices.Sort(out.Minions)
	if len(out.Minions) == 0 {
		out.JID, out.Error = "", "Master could not resolve minions for target x"
	}
	return out, nil
}

func (s *simulated) Returns(context.Context, string) (map[string]Return, error) {
	out := make(map[string]Return)
	for id, at := range s.cached {
		if time.Since(s.began) >= at {
			out[id] = Return{Return: wire.Raw{0xc3}}
		}
	}
	return out, nil
}

func TestRun(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	tests := []struct {
		name        string
		sim         *simulated
		returned    string
		notReturned string
		took        time.Duration
		findJobs    int
	}{
		{name: "all answer", returned: "a,b", took: 30 * ms, sim: &simulated{minions: map[string]minion{"a": {after: 20 * ms}, "b": {after: 30 * ms}}}},
		{name: "one silent costs timeout and gather", returned: "a", notReturned: "b", took: 15 * time.Second, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"a": {after: 20 * ms}, "b": {mute: true}}}},
		{name: "not running any more", notReturned: "b", took: 15 * time.Second, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"b": {}}}},
		{name: "long job is waited for", returned: "a", took: 48 * time.Second, findJobs: 5,
			sim: &simulated{minions: map[string]minion{"a": {after: 48 * time.Second, running: time.Hour}}}},
		{name: "long job that dies", notReturned: "a", took: 25 * time.Second, findJobs: 2,
			sim: &simulated{minions: map[string]minion{"a": {running: 12 * time.Second}}}},
		{name: "late while asking", returned: "a", took: 9 * time.Second, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"a": {after: 9 * time.Second}}}},
		{name: "duplicates are dropped", returned: "a", took: 20 * ms, sim: &simulated{minions: map[string]minion{"a": {after: 20 * ms, twice: true}}}},
		{name: "find_job fails there", returned: "a", took: 5*time.Second + 10*ms, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"a": {after: ms}, "b": {broken: true}}}},
		{name: "wider by an event", returned: "a", notReturned: "syndicated", took: 15 * time.Second, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"a": {after: 20 * ms}}, widen: map[string]time.Duration{"syndicated": ms}}},
		{name: "event lost, return kept", returned: "a", took: 5 * time.Second,
			sim: &simulated{minions: map[string]minion{"a": {}}, cached: map[string]time.Duration{"a": time.Second}}},
		{name: "nobody matches", sim: &simulated{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := tt.sim
				s.subs, s.began = make(map[*stream]string), time.Now()
				var order []string
				got, err := Run(context.Background(), s, Publish{Tgt: "*", TgtType: "glob", Fun: "test.ping"}, Options{}, func(id string, r Return) {
					order = append(order, id)
					if string(r.Return) != "\xc3" {
						t.Errorf("%s returned %x", id, r.Return)
					}
				})
				took := time.Since(s.began)
				if err != nil || strings.Join(got.Returned, ",") != tt.returned || strings.Join(got.NotReturned, ",") != tt.notReturned {
					t.Errorf("got %q and not %q, %v; want %q and not %q", got.Returned, got.NotReturned, err, tt.returned, tt.notReturned)
				}
				if took != tt.took || s.findJobs != tt.findJobs {
					t.Errorf("took %v with %d find_job, want %v with %d", took, s.findJobs, tt.took, tt.findJobs)
				}
				if slices.Sort(order); strings.Join(order, ",") != tt.returned {
					t.Errorf("handed out %q, want %q", order, tt.returned)
				}
				s.wg.Wait()
				if len(s.subs) != 0 || s.closed != tt.findJobs+1 {
					t.Errorf("%d subscriptions left open, %d closed", len(s.subs), s.closed)
				}
			})
		})
	}
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &simulated{minions: map[string]minion{"a": {}}, subs: make(map[*stream]string), began: time.Now()}
			ctx, cancel := context.WithTimeout(context.Background(), 7*time.Second)
			defer cancel()
			got, err := Run(ctx, s, Publish{Fun: "test.ping"}, Options{}, func(string, Return) {})
			if !errors.Is(err, context.DeadlineExceeded) || len(got.NotReturned) != 1 {
				t.Errorf("got %+v, %v", got, err)
			}
			s.wg.Wait()
		})
	})
	t.Run("master lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &simulated{minions: map[string]minion{"a": {}}, subs: make(map[*stream]string), began: time.Now()}
			s.later(time.Second, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				for st := range s.subs {
					close(st.ch)
				}
			})
			_, err := Run(context.Background(), s, Publish{Fun: "test.ping"}, Options{}, func(string, Return) {})
			if !errors.Is(err, ErrMasterLost) {
				t.Errorf("got %v", err)
			}
			s.wg.Wait()
		})
	})
}

// TestTrimmedReturnsComeWhole pins that a value which max_event_size cut out of an event is read from the job cache.
func TestTrimmedReturnsComeWhole(t *testing.T) {
	t.Parallel()
	whole, err := wire.Pack(strings.Repeat("x", 100))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]wire.Raw{}
	g := &gathering{
		master:   wholeReturns{"big": {Return: whole}},
		expected: map[string]time.Time{"big": {}, "lost": {}}, returned: map[string]bool{},
		onReturn: func(id string, r Return) { got[id] = r.Return },
	}
	for _, id := range []string{"big", "lost"} {
		data, err := wire.Pack(wire.Map{{Key: "id", Value: id}, {Key: "return", Value: "VALUE_TRIMMED"}})
		if err != nil {
			t.Fatal(err)
		}
		g.event(t.Context(), Event{Tag: "salt/job/1/ret/" + id, Data: data})
	}
	if string(got["big"]) != string(whole) {
		t.Errorf("got %d bytes of the large return, want %d", len(got["big"]), len(whole))
	}
	if v, _ := got["lost"].Text(); v != "VALUE_TRIMMED" {
		t.Errorf("a return that the cache lacks came as %q", v)
	}
}

// wholeReturns is a master that only has a job cache.
type wholeReturns map[string]Return

func (wholeReturns) Publish(context.Context, Publish) (Published, error)          { return Published{}, nil }
func (wholeReturns) Subscribe(context.Context, string) (Events, error)            { return nil, nil }
func (w wholeReturns) Returns(context.Context, string) (map[string]Return, error) { return w, nil }
