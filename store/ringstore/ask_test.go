package ringstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/query"
	"clustermaster/store/ringstore/ringpb"
)

// fields is a compiler for values such as "os=Debian;n=1" and questions such as "grains os=Debian":
// the name of a record, and conditions of which each is one bit. A condition that begins with "~"
// is a text in the whole value.
type fields struct{}

type fieldsJudge struct {
	looks []Look
	want  []string
	err   error
}

var errCostly = errors.New("costly")

func (fields) Compile(question []byte) (Judge, error) {
	words := strings.Fields(string(question))
	if len(words) < 2 || len(words) > 9 {
		return nil, errors.New("not a question")
	}
	j := &fieldsJudge{}
	for _, w := range words[1:] {
		if text, whole := strings.CutPrefix(w, "~"); whole {
			j.looks = append(j.looks, Look{Name: words[0], Whole: true})
			j.want = append(j.want, text)
			continue
		}
		key, value, _ := strings.Cut(w, "=")
		j.looks = append(j.looks, Look{Name: words[0], Key: key})
		j.want = append(j.want, value)
	}
	return j, nil
}

func (fields) Parts(value []byte, keys map[string]int, parts []Part) error {
	if string(value) == "damaged" {
		return ErrCorrupt
	}
	for field := range strings.SplitSeq(string(value), ";") {
		k, v, _ := strings.Cut(field, "=")
		if i, ok := keys[k]; ok {
			parts[i] = Part{Text: v, Found: true}
		}
	}
	return nil
}

func (j *fieldsJudge) Looks() []Look { return j.looks }
func (j *fieldsJudge) Width() int    { return 1 }
func (j *fieldsJudge) Err() error    { return j.err }

func (j *fieldsJudge) Hit(look int, p Part, hits []byte) {
	if p.Found && strings.HasPrefix(p.Text, "costly") {
		j.err = errCostly
	}
	if p.Found && (p.Text == j.want[look] || j.looks[look].Whole &&
		strings.Contains(p.Text, j.want[look])) {
		hits[0] |= 1 << look
	}
}

// asks returns the places that a question hits, each with its hits.
func asks(ctx context.Context, s *Store, question string, places ...string) (map[string]byte,
	Coverage, error) {
	got := map[string]byte{}
	cover, err := s.Ask(ctx, SpaceMinions, []byte(question), places,
		func(place string, hits []byte) {
			if _, twice := got[place]; twice {
				got[place] = 0xff
				return
			}
			got[place] = hits[0]
		})
	return got, cover, err
}

func put(ctx context.Context, s *Store, place, value string) error {
	_, err := s.Write(ctx, place, Put{Space: SpaceMinions, Name: "grains", Value: []byte(value)})
	return err
}

// TestAskSeesEveryWrite: whatever is kept in memory of earlier questions, an answer is what the
// disk has.
func TestAskSeesEveryWrite(t *testing.T) {
	t.Parallel()
	for _, memory := range []int64{1, 20_000, 1 << 30} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			t.Parallel()
			opts := Options{PartBytes: memory,
				Compilers: map[Space]Compiler{SpaceMinions: fields{}}}
			s, err := Open(t.TempDir(), newAlone(), opts, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			ctx := t.Context() // many steps, however busy the machine is
			r := rand.New(rand.NewPCG(1, uint64(memory)))
			model := map[string]string{}
			for step := range 3000 {
				place := fmt.Sprintf("minion%d", r.IntN(300))
				switch r.IntN(10) {
				case 0:
					if err := s.Delete(ctx, SpaceMinions, place, "grains"); err != nil {
						t.Fatal(err)
					}
					delete(model, place)
				case 1:
					if err := put(ctx, s, place, "damaged"); err != nil {
						t.Fatal(err)
					}
					delete(model, place)
				case 2, 3:
					key, value := fmt.Sprintf("k%d", r.IntN(3)), fmt.Sprint(r.IntN(3))
					if r.IntN(20) == 0 {
						key = fmt.Sprintf("k%d", 3+r.IntN(100)) // many different looks
					}
					got, cover, err := asks(ctx, s, "grains "+key+"="+value+" k1=1 k0=2;")
					if err != nil || !cover.Complete() {
						t.Fatal(cover, err)
					}
					want := map[string]byte{}
					for id, v := range model {
						var hits byte
						if strings.Contains(";"+v+";", ";"+key+"="+value+";") {
							hits = 1
						}
						if strings.Contains(";"+v+";", ";k1=1;") {
							hits |= 2
						}
						if hits != 0 {
							want[id] = hits
						}
					}
					if !maps.Equal(got, want) {
						t.Fatalf("step %d: %s=%s hits %v, want %v", step, key, value, got, want)
					}
				default:
					v := fmt.Sprintf("k0=%d;k1=%d;k2=%d", r.IntN(3), r.IntN(3), r.IntN(3))
					if err := put(ctx, s, place, v); err != nil {
						t.Fatal(err)
					}
					model[place] = v
				}
				if kept := s.parts.Bytes(); kept > memory {
					t.Fatalf("%d bytes kept, at most %d", kept, memory)
				}
			}
			if looks := s.parts.Looks(); looks > query.MaxLooks {
				t.Errorf("%d looks kept", looks)
			}
			if memory == 1<<30 && s.parts.Bytes() == 0 {
				t.Error("nothing was kept")
			}
			// a look at the whole, and one of the parts
			got, _, err := asks(ctx, s, "grains ~k0=0;k1=1 k2=1")
			if err != nil {
				t.Fatal(err)
			}
			for id, v := range model {
				if hit := got[id]&1 != 0; hit != strings.HasPrefix(v, "k0=0;k1=1") {
					t.Errorf("%s has %q, hit %v", id, v, hit)
				}
			}
		})
	}
}

// fill writes n minions of which every third is a Debian, and returns these.
func (k *kit) fill(ctx context.Context, n int) map[string]byte {
	k.t.Helper()
	want := map[string]byte{}
	for i := range n {
		id := fmt.Sprintf("minion%03d", i)
		os := []string{"Debian", "Fedora", "windows"}[i%3]
		if err := put(ctx, k.store("m1/a"), id, "os="+os); err != nil {
			k.t.Fatal(err)
		}
		if i%3 == 0 {
			want[id] = 1
		}
	}
	return want
}

// asksAlways asks from these nodes until the returned function is called, which waits. Each answer
// must be complete and right.
func (k *kit) asksAlways(ctx context.Context, want map[string]byte,
	names ...string) (stop func() int) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var mu sync.Mutex
	asked := 0
	for _, name := range names {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; ctx.Err() == nil; n++ {
				s := k.store(name)
				got, cover, err := asks(ctx, s, "grains os=Debian")
				if ctx.Err() != nil {
					return
				}
				if err != nil || !cover.Complete() || !maps.Equal(got, want) {
					k.t.Errorf("%s, question %d: %d of %d minions, %v, %v", name, n, len(got),
						len(want), cover, err)
					return
				}
				mu.Lock()
				asked++
				mu.Unlock()
			}
		}()
	}
	return func() int {
		cancel()
		wg.Wait()
		return asked
	}
}

// TestAskWhileMastersDie: a minority that dies, hangs or is cut off while it judges costs no
// minion.
func TestAskWhileMastersDie(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	want := k.fill(ctx, 300)
	stop := k.asksAlways(ctx, want, "m1/a", "m2/b")
	for range 3 {
		k.node("m3/c").kill()
		if got, cover, err := asks(ctx, k.store("m1/a"), "grains os=Debian"); err != nil ||
			!cover.Complete() || !maps.Equal(got, want) {
			t.Errorf("with one dead: %d minions, %v, %v", len(got), cover, err)
		}
		k.start("m3/c")
		k.isolate("m3/c", true)
		k.isolate("m3/c", false)
	}
	k.hang("m3/c", true)
	// its silence is noticed
	time.AfterFunc(300*time.Millisecond, func() { k.isolate("m3/c", true) })
	began := time.Now()
	if got, cover, err := asks(ctx, k.store("m1/a"), "grains os=Debian"); err != nil ||
		!cover.Complete() || !maps.Equal(got, want) {
		t.Errorf("with one hung: %d minions, %v, %v", len(got), cover, err)
	}
	t.Logf("answered %v after one stopped answering", time.Since(began))
	k.hang("m3/c", false)
	k.isolate("m3/c", false)
	t.Logf("%d questions", stop())

	// Two of three away: said, not passed over in silence.
	k.node("m2/b").kill()
	k.node("m3/c").kill()
	got, cover, err := asks(ctx, k.store("m1/a"), "grains os=Debian")
	if err != nil || cover.String() != "incomplete: 64 of 64 partitions" || !maps.Equal(got, want) {
		t.Errorf("alone: %d minions, %v, %v", len(got), cover, err)
	}
	got, cover, err = asks(ctx, k.store("m1/a"), "grains os=Debian", "minion000", "minion001")
	if err != nil || cover.Incomplete != 2 || !maps.Equal(got, map[string]byte{"minion000": 1}) {
		t.Errorf("alone, about two: %v, %v, %v", got, cover, err)
	}
}

// TestAskWhileTheRingChanges: masters join and leave under questions from all of them and writes of
// other records.
func TestAskWhileTheRingChanges(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	want := k.fill(ctx, 300)
	stop := k.asksAlways(ctx, want, "m1/a", "m2/b")
	writing, enough := context.WithCancel(ctx)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; writing.Err() == nil; i++ {
			if err := put(ctx, k.store("m2/b"), fmt.Sprintf("other%03d", i%100),
				"os=other"); err != nil {
				t.Errorf("write: %v", err)
				return
			}
		}
	}()
	for _, ring := range [][]string{{"m1/a", "m2/b", "m3/c", "m4/d"}, {"m1/a", "m2/b", "m4/d"},
		{"m1/a", "m2/b", "m3/c", "m4/d", "m5/e"}, {"m1/a", "m2/b", "m5/e"}} {
		k.setRing(ring...)
		for _, name := range ring {
			if n := k.node(name); n == nil || !n.up {
				k.start(name)
			}
		}
		k.settled()
		eventually(t, "copies of others are dropped", func() error {
			for _, n := range k.all() {
				if !slices.Contains(ring, n.name) {
					continue
				}
				ids := foreign(n.store, n.store.view.Load().Latest())
				if len(ids) > 0 {
					return fmt.Errorf("%s has %d", n.name, len(ids))
				}
			}
			return nil
		})
		last := ring[len(ring)-1]
		if got, cover, err := asks(ctx, k.store(last), "grains os=Debian"); err != nil ||
			!cover.Complete() || !maps.Equal(got, want) {
			t.Errorf("asked at %s: %d minions, %v, %v", last, len(got), cover, err)
		}
	}
	enough()
	<-written
	t.Logf("%d questions", stop())
}

// TestAskRestartsWhenItsRingIsLeft: an owner that has dropped its share since says so, and the
// question is put by the new ring.
func TestAskRestartsWhenItsRingIsLeft(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c", "m4/d")
	ctx := t.Context()
	k.settled()
	want := k.fill(ctx, 100)
	req := &ringpb.AskRequest{Base: k.epoch, Space: uint32(SpaceMinions),
		Question: []byte("grains os=Debian"), Partitions: []uint32{1, 2, 3}}
	last := func() (c *ringpb.Verdicts) {
		err := k.store("m1/a").query.Answer(ctx, req,
			func(v *ringpb.Verdicts) error { c = v; return nil })
		if err != nil || !c.Done {
			t.Fatal(c, err)
		}
		return c
	}
	if last().Left {
		t.Error("a settled ring is left")
	}
	k.setRing("m1/a", "m2/b", "m3/c")
	k.node("m4/d").kill()
	k.settled()
	if !last().Left {
		t.Error("a question by a ring that nobody has any more is answered as if it were whole")
	}
	// The asker finds the new ring by itself.
	if got, cover, err := asks(ctx, k.store("m2/b"), "grains os=Debian"); err != nil ||
		!cover.Complete() || !maps.Equal(got, want) {
		t.Errorf("%d minions, %v, %v", len(got), cover, err)
	}
}

// TestAskTakesTheNewestCopy: an owner that missed writes, and copies that others hold for it, don't
// bring back what was.
func TestAskTakesTheNewestCopy(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c", "m4/d")
	ctx := t.Context()
	k.settled()
	k.fill(ctx, 120)
	k.node("m4/d").kill()
	want := map[string]byte{}
	for i := range 120 {
		id := fmt.Sprintf("minion%03d", i)
		switch i % 4 {
		case 0:
			if err := k.store("m1/a").Delete(ctx, SpaceMinions, id, "grains"); err != nil {
				t.Fatal(err)
			}
		case 1:
			want[id] = 1
			if err := put(ctx, k.store("m2/b"), id, "os=Debian"); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := put(ctx, k.store("m3/c"), id, "os=Fedora"); err != nil {
				t.Fatal(err)
			}
		default:
			if i%3 == 0 {
				want[id] = 1
			}
		}
	}
	check := func(when string) {
		t.Helper()
		for _, n := range k.all() {
			if !n.up {
				continue
			}
			got, cover, err := asks(ctx, n.store, "grains os=Debian")
			if err != nil || !cover.Complete() || !maps.Equal(got, want) {
				t.Errorf("%s, asked at %s: %d minions, want %d, %v, %v", when, n.name, len(got),
					len(want), cover, err)
			}
			some := []string{"minion001", "minion002", "minion003", "minion004"}
			got, cover, err = asks(ctx, n.store, "grains os=Debian", some...)
			if err != nil || !cover.Complete() ||
				!maps.Equal(got, map[string]byte{"minion001": 1, "minion003": 1}) {
				t.Errorf("%s, asked at %s about four: %v, %v, %v", when, n.name, got, cover, err)
			}
		}
	}
	check("one is dead")
	k.start("m4/d")
	check("it is back")
	k.settled()
	check("it caught up")
}

// TestAskOldMasters: during an upgrade some masters know no questions.
func TestAskOldMasters(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	want := k.fill(ctx, 60)
	k.mu.Lock()
	k.old["m3/c"] = true
	k.mu.Unlock()
	got, cover, err := asks(ctx, k.store("m1/a"), "grains os=Debian")
	if err != nil || !cover.Complete() || !maps.Equal(got, want) {
		t.Errorf("%d minions, %v, %v", len(got), cover, err)
	}
	got, _, err = asks(ctx, k.store("m1/a"), "grains os=Debian", "minion000", "minion001")
	if err != nil || !maps.Equal(got, map[string]byte{"minion000": 1}) {
		t.Errorf("about two: %v, %v", got, err)
	}
}

// TestAskTooCostly: whichever master works too long on a question, who put it hears so, and no half
// of an answer.
func TestAskTooCostly(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	k.fill(ctx, 60)
	if err := put(ctx, k.store("m1/a"), "minion000", "os=costly"); err != nil {
		t.Fatal(err)
	}
	for _, old := range []bool{false, true} {
		k.mu.Lock()
		k.old["m3/c"] = old
		k.mu.Unlock()
		for _, node := range []string{"m1/a", "m2/b"} {
			for _, places := range [][]string{nil, {"minion000", "minion001"}} {
				if got, _, err := asks(ctx, k.store(node), "grains os=Debian",
					places...); !errors.Is(err, ErrTooCostly) {
					t.Errorf("old %v, %s about %v: %d hits, %v", old, node, places, len(got), err)
				}
			}
		}
	}
	if _, _, err := asks(ctx, k.store("m1/a"), "grains os=Debian", "minion001"); err != nil {
		t.Error(err)
	}
}

func TestAskRefuses(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b")
	ctx := t.Context()
	k.settled()
	client := k.store("m1/a").remote
	for _, tt := range []struct {
		name string
		req  *ringpb.AskRequest
		want string
	}{
		{"no question", &ringpb.AskRequest{Space: uint32(SpaceMinions)}, "not a question"},
		{"a space without questions", &ringpb.AskRequest{Space: uint32(SpaceJobs),
			Question: []byte("grains a=b")}, "space 1"},
		{"a large question", &ringpb.AskRequest{Space: uint32(SpaceMinions),
			Question: make([]byte, query.MaxQuestion+1)}, "too large"},
		{"many places", &ringpb.AskRequest{Space: uint32(SpaceMinions),
			Question: []byte("grains a=b"), Places: make([][]byte, query.MaxPlaces+1)},
			"too large"},
		{"a long place", &ringpb.AskRequest{Space: uint32(SpaceMinions),
			Question: []byte("grains a=b"), Places: [][]byte{make([]byte, MaxPlace+1)}},
			"too large"},
		{"many partitions", &ringpb.AskRequest{Space: uint32(SpaceMinions),
			Question: []byte("grains a=b"), Partitions: make([]uint32, disk.MaxPartitions+1)},
			"too large"},
	} {
		stream, err := client.Ask(ctx, "m2/b", tt.req)
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	// Partitions that no ring has are nobody's.
	stream, err := client.Ask(ctx, "m2/b", &ringpb.AskRequest{Space: uint32(SpaceMinions),
		Question: []byte("grains a=b"), Partitions: []uint32{1 << 31, 64, 65535}, Base: k.epoch})
	if err != nil {
		t.Fatal(err)
	}
	for {
		c, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if c.Done {
			break
		}
	}
	if n := k.store("m2/b").parts.Tables(); n != 0 {
		t.Errorf("%d tables were made for partitions that don't exist", n)
	}
	if _, _, err := asks(ctx, k.store("m1/a"), "nonsense"); err == nil {
		t.Error("nonsense is answered")
	}
	if _, _, err := asks(ctx, k.store("m1/a"), "grains a=b",
		make([]string, query.MaxPlaces+1)...); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// TestAskAboutCopiesThatDiffer: a version that one owner alone has, or a stand-in alone for a dead
// owner, is the one that counts.
func TestAskAboutCopiesThatDiffer(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a", "m2/b", "m3/c", "m4/d")
	ctx := t.Context()
	k.settled()
	k.fill(ctx, 60)
	k.node("m4/d").kill()
	s := k.store("m1/a")
	v := s.view.Load()
	want := map[string]byte{}
	alone, held := 0, 0
	for i := range 60 {
		id := fmt.Sprintf("minion%03d", i)
		p := v.Latest().Partition(id)
		c := disk.Change{Record: Record{
			Key: Key{Space: SpaceMinions, Place: id, Name: "grains"}, Value: []byte("os=Debian"),
			Version: Version{Clock: s.clock.Next(), Node: s.node}, Partition: p,
		}}
		var to string
		for _, n := range []string{"m1/a", "m2/b", "m3/c"} {
			if !v.Base.Owns(n, p) {
				to, c.StandIn, c.Owed = n, true, []string{"m4/d"}
				held++
			}
		}
		if to == "" {
			to = v.Base.Owners(p)[2] // does not judge
			alone++
		}
		if err := s.give(ctx, v, to, []disk.Change{c}); err != nil {
			t.Fatal(err)
		}
		want[id] = 1
	}
	if alone == 0 || held == 0 {
		t.Fatalf("%d versions on one owner, %d on a stand-in", alone, held)
	}
	for _, n := range []string{"m1/a", "m2/b", "m3/c"} {
		got, cover, err := asks(ctx, k.store(n), "grains os=Debian")
		if err != nil || !cover.Complete() || !maps.Equal(got, want) {
			t.Errorf("asked at %s: %d minions of %d, %v, %v", n, len(got), len(want), cover, err)
		}
	}
}

// TestAskWhenThoseWhoMergeGoAway: who is lost after it was counted on is not counted on.
func TestAskWhenThoseWhoMergeGoAway(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.opts.ReadTimeout = 2 * time.Second // it is waited for
	k.begin("m1/a", "m2/b", "m3/c")
	ctx := t.Context()
	k.settled()
	want := k.fill(ctx, 60)
	s := k.store("m1/a")
	k.hang("m2/b", true)
	k.hang("m3/c", true)
	places := slices.Sorted(maps.Keys(want)) // with them all owners are asked to judge at once
	partitions := map[int]bool{}
	for _, p := range places {
		partitions[k.ring.Partition(p)] = true
	}
	got, cover, err := asks(ctx, s, "grains os=Debian", places...)
	if err != nil || !maps.Equal(got, want) || cover.Incomplete != len(partitions) {
		t.Errorf("%d hits of %d, %v with %d partitions asked about, %v", len(got), len(want), cover,
			len(partitions), err)
	}
}

// TestAskAfterRecordsWereDropped: what was kept in memory of partitions that went to other masters
// goes too.
func TestAskAfterRecordsWereDropped(t *testing.T) {
	t.Parallel()
	k := newKit(t, "m1/a")
	ctx := t.Context()
	k.settled()
	want := k.fill(ctx, 60)
	s := k.store("m1/a")
	if got, _, err := asks(ctx, s, "grains os=Debian"); err != nil || !maps.Equal(got, want) {
		t.Fatal(len(got), err)
	}
	n, err := s.disk.DropPartitions(ctx, s.view.Load().Latest().Epoch(),
		func(p int) bool { return p%2 == 0 })
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	maps.DeleteFunc(want, func(id string,
		_ byte) bool {
		return s.view.Load().Latest().Partition(id)%2 == 0
	})
	if got, _, err := asks(ctx, s, "grains os=Debian"); err != nil || !maps.Equal(got, want) {
		t.Errorf("%d minions, want %d, %v", len(got), len(want), err)
	}
}

// A master whose own records must not answer asks the others, which have them all.
func TestAskByAMasterThatLacksRecords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		begin func(b *Store) error
	}{
		{"refilling", func(b *Store) error { return b.swap(t.Context(), toldDamage, "a test") }},
		{"away for long", func(b *Store) error { b.stale.Store(true); return nil }},
		{"replaced during the question", func(b *Store) error {
			var asked atomic.Bool
			b.query.Withheld = func() error {
				if asked.Swap(true) {
					return errRefilling
				}
				return nil
			}
			return nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t)
			k.setRing("a", "b", "c")
			k.start("a")
			k.start("c")
			var judged atomic.Bool
			judged.Store(true)
			k.opts.ClockJudged = judged.Load
			b := k.start("b").store
			k.settled()
			ctx := t.Context()
			const records = 50
			for n := range records {
				if err := put(ctx, k.store("a"), fmt.Sprintf("p%d", n), "os=Debian"); err != nil {
					t.Fatal(err)
				}
			}
			k.settled()
			judged.Store(false) // so that b fetches nothing, and asks nobody about its absence
			if err := tt.begin(b); err != nil {
				t.Fatal(err)
			}
			for _, question := range []string{"grains os=Debian", "grains ~Debian"} {
				got, cover, err := asks(ctx, b, question)
				if err != nil || !cover.Complete() || len(got) != records {
					t.Errorf("%q: %d of %d, %v, %v", question, len(got), records, cover, err)
				}
			}
			if got, cover, err := asks(ctx, b, "grains os=Debian", "p7"); err != nil ||
				!cover.Complete() || got["p7"] != 1 {
				t.Errorf("about p7: %v, %v, %v", got, cover, err)
			}
			if b.query.Withheld() == nil {
				t.Error("b was well again before it was asked")
			}
			k.isolate("b", true)
			for _, places := range [][]string{nil, {"p7"}} {
				if got, cover, err := asks(ctx, b, "grains os=Debian", places...); !errors.Is(err,
					ErrUnavailable) || !errors.Is(err, errRefilling) {
					t.Errorf("cut off, about %q: %v, %v, %v", places, got, cover, err)
				}
			}
		})
	}
}
