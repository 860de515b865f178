package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"clustermaster/value"
)

// simulated is a master with minions that answer after a delay, in virtual time.
type simulated struct {
	minions  map[string]minion
	orders   bool                     // it has syndics below
	widen    map[string]time.Duration // ids that a minions event adds, and when
	cached   map[string]time.Duration // returns that reach only the job cache, and when
	mu       sync.Mutex
	subs     map[*stream]string
	began    time.Time
	findJobs int
	wg       sync.WaitGroup
	closed   int
	made     atomic.Int64 // job ids

	reads     []int         // how many ids each read of the cache asked for
	readBytes int           // how many returns came from it
	perRead   time.Duration // what each of them takes
	failAfter int           // the first read hangs after so many ids
}

type minion struct {
	after   time.Duration // 0: never answers test.ping
	deaf    bool          // answers test.ping alone
	twice   bool
	running time.Duration // how long find_job finds the job
	mute    bool          // does not answer find_job
	broken  bool          // find_job has a retcode
	trimmed bool          // its event has VALUE_TRIMMED, and the cache the return
	bare    bool          // its event was trimmed to its stamp, and the cache has the return
	dropped bool          // its event is lost, which is noticed, and the cache has the return
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

func (s *simulated) NewJID(context.Context) (string, error) {
	return fmt.Sprintf("20261121093513%06d", s.made.Add(1)), nil
}

func (s *simulated) Subscribe(_ context.Context, prefix string) (Events, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &stream{ch: make(chan Event, 100), sim: s}
	s.subs[st] = prefix
	return st, nil
}

func (s *simulated) fire(tag string, data value.Map) {
	packed, err := value.Pack(data)
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

// cache keeps a return, as of now.
func (s *simulated) cache(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached == nil {
		s.cached = make(map[string]time.Duration)
	}
	s.cached[id] = time.Since(s.began)
}

// notice tells the subscribers of prefix that something was lost.
func (s *simulated) notice(prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st, p := range s.subs {
		if p == prefix {
			st.ch <- Event{Lost: true}
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
		data := value.Map{{Key: "id", Value: id}, {Key: "jid", Value: p.JID},
			{Key: "retcode", Value: int64(0)}}
		tag := "salt/job/" + p.JID + "/ret/" + id
		if p.Fun == "saltutil.find_job" {
			ret := value.Map{}
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
		if m.after > 0 && (p.Fun == "test.ping" || !m.deaf) {
			s.later(m.after, func() {
				if m.trimmed || m.bare || m.dropped {
					s.cache(id)
				}
				switch {
				case m.trimmed:
					s.fire(tag, data.Set("return", "VALUE_TRIMMED"))
					return
				case m.bare:
					s.fire(tag, value.Map{{Key: "_stamp", Value: "now"}})
					return
				case m.dropped:
					s.notice("salt/job/" + p.JID + "/")
					return
				}
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
			s.later(d, func() {
				s.fire("salt/job/"+p.JID+"/new",
					value.Map{{Key: "minions", Value: []any{id}}})
			})
		}
	}
	slices.Sort(out.Minions)
	if len(out.Minions) == 0 && !s.orders {
		out.JID, out.Error = "", "Master could not resolve minions for target x"
	}
	return out, nil
}

func (s *simulated) ReadReturns(ctx context.Context, _ string, ids []string,
	fn func(string, Return) error) error {
	s.reads = append(s.reads, len(ids))
	for i, id := range ids {
		if i == s.failAfter && s.failAfter > 0 {
			s.failAfter = 0
			<-ctx.Done() // it hangs
			return ctx.Err()
		}
		s.mu.Lock()
		at, kept := s.cached[id]
		s.mu.Unlock()
		if kept && time.Since(s.began) >= at {
			if s.perRead > 0 {
				time.Sleep(s.perRead)
			}
			s.readBytes++
			if err := fn(id, Return{Return: value.Raw{0xc3}}); err != nil {
				return err
			}
		}
	}
	return nil
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
		syndics     time.Duration
	}{
		{name: "all answer", returned: "a,b", took: 30 * ms,
			sim: &simulated{minions: map[string]minion{"a": {after: 20 * ms},
				"b": {after: 30 * ms}}}},
		{name: "one silent costs timeout and gather", returned: "a", notReturned: "b",
			took: 15 * time.Second, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"a": {after: 20 * ms}, "b": {mute: true}}}},
		{name: "not running any more", notReturned: "b", took: 15 * time.Second, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"b": {}}}},
		{name: "long job is waited for", returned: "a", took: 48 * time.Second, findJobs: 5,
			sim: &simulated{minions: map[string]minion{"a": {after: 48 * time.Second,
				running: time.Hour}}}},
		{name: "long job that dies", notReturned: "a", took: 25 * time.Second, findJobs: 2,
			sim: &simulated{minions: map[string]minion{"a": {running: 12 * time.Second}}}},
		{name: "late while asking", returned: "a", took: 9 * time.Second, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"a": {after: 9 * time.Second}}}},
		{name: "duplicates are dropped", returned: "a", took: 20 * ms,
			sim: &simulated{minions: map[string]minion{"a": {after: 20 * ms, twice: true}}}},
		{name: "find_job fails there", returned: "a", took: 5*time.Second + 10*ms, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"a": {after: ms}, "b": {broken: true}}}},
		{name: "wider by an event", returned: "a", notReturned: "syndicated",
			took: 15 * time.Second, findJobs: 1,
			sim: &simulated{minions: map[string]minion{"a": {after: 20 * ms}},
				widen: map[string]time.Duration{"syndicated": ms}}},
		{name: "event lost, return kept", returned: "a", took: 5 * time.Second,
			sim: &simulated{minions: map[string]minion{"a": {}},
				cached: map[string]time.Duration{"a": time.Second}}},
		{name: "nobody matches", sim: &simulated{}},
		{name: "nobody matches, syndics may know more", took: 4 * time.Second,
			syndics: 4 * time.Second, sim: &simulated{orders: true}},
		{name: "all answer before syndics do", returned: "a", took: 4 * time.Second,
			syndics: 4 * time.Second,
			sim:     &simulated{minions: map[string]minion{"a": {after: 20 * ms}}}},
		{name: "only behind a syndic", returned: "below", took: 5 * time.Second,
			syndics: 4 * time.Second,
			sim: &simulated{orders: true, widen: map[string]time.Duration{"below": ms},
				cached: map[string]time.Duration{"below": time.Second}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := tt.sim
				s.subs, s.began = make(map[*stream]string), time.Now()
				var order []string
				got, err := Run(context.Background(), s,
					Publish{Tgt: "*", TgtType: "glob",
						Fun: "test.ping"}, Options{SyndicWait: tt.syndics},
					func(id string, r Return) {
						order = append(order, id)
						if string(r.Return) != "\xc3" {
							t.Errorf("%s returned %x", id, r.Return)
						}
					})
				took := time.Since(s.began)
				if err != nil || strings.Join(got.Returned, ",") != tt.returned ||
					strings.Join(got.NotReturned, ",") != tt.notReturned {
					t.Errorf("got %q and not %q, %v; want %q and not %q", got.Returned,
						got.NotReturned, err, tt.returned, tt.notReturned)
				}
				if took != tt.took || s.findJobs != tt.findJobs {
					t.Errorf("took %v with %d find_job, want %v with %d", took, s.findJobs, tt.took,
						tt.findJobs)
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

// slow publishes a job and never says so.
type slow struct{ *simulated }

func (slow) Publish(ctx context.Context, _ Publish) (Published, error) {
	<-ctx.Done()
	return Published{}, ctx.Err()
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &simulated{minions: map[string]minion{"a": {}}, subs: make(map[*stream]string),
				began: time.Now()}
			ctx, cancel := context.WithTimeout(context.Background(), 7*time.Second)
			defer cancel()
			got, err := Run(ctx, s, Publish{Fun: "test.ping"}, Options{}, func(string, Return) {})
			if !errors.Is(err, context.DeadlineExceeded) || len(got.NotReturned) != 1 {
				t.Errorf("got %+v, %v", got, err)
			}
			s.wg.Wait()
		})
	})
	t.Run("cancelled before the master said that it published", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := slow{&simulated{subs: make(map[*stream]string), began: time.Now()}}
			ctx, cancel := context.WithTimeout(context.Background(), 7*time.Second)
			defer cancel()
			got, err := Run(ctx, s, Publish{Fun: "test.ping"}, Options{}, func(string, Return) {})
			if !errors.Is(err, context.DeadlineExceeded) || got.JID == "" {
				t.Errorf("got %+v, %v; want the job's id", got, err)
			}
		})
	})
	t.Run("master lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &simulated{minions: map[string]minion{"a": {}}, subs: make(map[*stream]string),
				began: time.Now()}
			s.later(time.Second, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				for st := range s.subs {
					close(st.ch)
				}
			})
			_, err := Run(context.Background(), s, Publish{Fun: "test.ping"}, Options{},
				func(string, Return) {})
			if !errors.Is(err, ErrMasterLost) {
				t.Errorf("got %v", err)
			}
			s.wg.Wait()
		})
	})
}
