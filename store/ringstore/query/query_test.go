package query

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"clustermaster/hashring"
	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
	"clustermaster/store/ringstore/rings"
)

// place is one master of a test: a disk of its own and queries, and the others by name. Their
// answers are made in this process.
type place struct {
	*Queries
	name  string
	view  *rings.View
	all   map[string]*place
	fault error // what the others get
}

func (p *place) Self() string                                     { return p.name }
func (p *place) Alive(string) bool                                { return true }
func (p *place) Current(context.Context) (*rings.View, error)     { return p.view, nil }
func (p *place) View() *rings.View                                { return p.view }
func (p *place) Retry(_ context.Context, read func() error) error { return read() }

type answers struct {
	grpc.ServerStreamingClient[ringpb.Verdicts]
	list []*ringpb.Verdicts
}

func (a *answers) Recv() (*ringpb.Verdicts, error) {
	if len(a.list) == 0 {
		return nil, io.EOF
	}
	next := a.list[0]
	a.list = a.list[1:]
	return next, nil
}

type others struct{ p *place }

func (o others) Ask(ctx context.Context, node string,
	req *ringpb.AskRequest) (grpc.ServerStreamingClient[ringpb.Verdicts], error) {
	to, a := o.p.all[node], &answers{}
	err := errors.Join(to.fault, to.Answer(ctx, req,
		func(v *ringpb.Verdicts) error { a.list = append(a.list, v); return nil }))
	return a, err
}

func (o others) Scan(_ context.Context, node string, req *ringpb.ScanRequest,
	fn func([]disk.Record) error) error {
	to := o.p.all[node]
	var partitions []int
	for _, p := range req.Partitions {
		partitions = append(partitions, int(p))
	}
	return errors.Join(to.fault, to.Disk.Scan(disk.Space(req.Space), partitions,
		disk.Begins(string(req.Prefix)), false, fn))
}

func (o others) Digest(_ context.Context, node string,
	req *ringpb.DigestRequest) (*ringpb.DigestReply, error) {
	to, reply := o.p.all[node], &ringpb.DigestReply{}
	for _, x := range to.Disk.Digest(disk.Space(req.Space), nil, false) {
		reply.Cells = append(reply.Cells, &ringpb.Cell{Partition: uint32(x.Partition), Sum: x.Sum,
			Count: uint64(x.Count)})
	}
	return reply, to.fault
}

// is is a compiler of questions about equal values.
type is struct{ want string }

func (is) Compile(question []byte) (Judge, error) { return is{string(question)}, nil }
func (is) Looks() []Look                          { return []Look{{Name: "n", Key: "all"}} }
func (is) Width() int                             { return 1 }
func (is) Err() error                             { return nil }

func (is) Parts(value []byte, keys map[string]int, parts []Part) error {
	parts[keys["all"]] = Part{Text: string(value), Found: true}
	return nil
}

func (j is) Hit(_ int, p Part, hits []byte) {
	if p.Text == j.want {
		hits[0] = 1
	}
}

const space = disk.Space(3)

// masters opens three masters of one ring, of which each owns everything.
func masters(t *testing.T) map[string]*place {
	t.Helper()
	names := []string{"m1/a", "m2/b", "m3/c"}
	ring := hashring.New(names, 8, 3, 1)
	all := map[string]*place{}
	for _, name := range names {
		parts := NewParts(1<<20, map[disk.Space]Compiler{space: is{}})
		clock := disk.NewClock(time.Now)
		d, err := disk.Open(t.TempDir(), disk.Options{Watch: parts, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		if err := d.Start(1); err != nil {
			t.Fatal(err)
		}
		p := &place{name: name, all: all,
			view: &rings.View{Rings: []*hashring.Ring{ring}, Base: ring}}
		p.Queries = New(Options{
			Disk: d, Parts: parts, Clock: clock, Members: p, Peers: others{p},
			Withheld: func() error { return nil },
			Spawn:    func(f func()) bool { go f(); return true },
			Now:      time.Now, Log: slog.New(slog.DiscardHandler), Timeout: time.Minute,
			ReadTimeout: time.Minute, LookAgain: time.Second, MaxList: 1 << 20,
			Asked: func(time.Duration, int, int, int) {}, Retried: func() {},
		})
		all[name] = p
	}
	return all
}

// write gives one master a record.
func (p *place) write(t *testing.T, name, value string, version uint64) {
	t.Helper()
	w := &disk.Write{Epoch: 1, Changes: []disk.Change{{Record: disk.Record{
		Key: disk.Key{Space: space, Place: name, Name: "n"}, Value: []byte(value),
		Version: disk.Version{Clock: version, Node: 1}, Partition: p.view.Latest().Partition(name),
	}}}}
	if err := p.Disk.Commit(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// TestCopiesThatDiffer asks and scans while the masters agree, when one of them alone has a newer
// version, and when a majority gives no answer.
func TestCopiesThatDiffer(t *testing.T) {
	t.Parallel()
	all := masters(t)
	want := map[string]string{}
	for i := range 40 {
		id := fmt.Sprint("minion", i)
		want[id] = []string{"red", "blue"}[i%2]
		for _, p := range all {
			p.write(t, id, want[id], uint64(i+1))
		}
	}
	see := func(what string, incomplete bool) {
		t.Helper()
		for name, p := range all {
			if p.fault != nil {
				continue
			}
			got := map[string]string{}
			add := func(id, value string) {
				if got[id] != "" {
					t.Errorf("%s: %s sees %s twice", what, name, id)
				}
				got[id] = value
			}
			for _, color := range []string{"red", "blue"} {
				cover, err := p.Ask(t.Context(), space, []byte(color), nil,
					func(id string, _ []byte) { add(id, color) })
				if err != nil || cover.Complete() == incomplete {
					t.Errorf("%s: %s asks: %v, %v", what, name, cover, err)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: %s is answered %v, want %v", what, name, got, want)
			}
			clear(got)
			cover, err := p.Scan(t.Context(), space, "n", func(r disk.Record) error {
				add(r.Place, string(r.Value))
				return nil
			})
			if err != nil || cover.Complete() == incomplete || !maps.Equal(got, want) {
				t.Errorf("%s: %s scans %v, want %v; %v, %v", what, name, got, want, cover, err)
			}
		}
	}
	see("all agree", false)
	all["m2/b"].write(t, "minion7", "red", 1000)
	want["minion7"] = "red"
	see("one has a newer version", false)
	all["m1/a"].fault, all["m3/c"].fault = errors.New("away"), errors.New("away")
	see("one is left", true)
}

// TestAnswersAreRefused: what a master must not answer, and what no master of ours asks.
func TestAnswersAreRefused(t *testing.T) {
	t.Parallel()
	p := masters(t)["m1/a"]
	for what, tc := range map[string]struct {
		req  *ringpb.AskRequest
		want error
	}{
		"another space": {&ringpb.AskRequest{Space: 9, Question: []byte("red")}, ErrQuestion},
		"a large question": {&ringpb.AskRequest{Space: uint32(space),
			Question: make([]byte, MaxQuestion+1)}, disk.ErrTooLarge},
		"a long place": {&ringpb.AskRequest{Space: uint32(space), Question: []byte("red"),
			Places: [][]byte{[]byte(strings.Repeat("p", disk.MaxPlace+1))}}, disk.ErrTooLarge},
		"many places": {&ringpb.AskRequest{Space: uint32(space), Question: []byte("red"),
			Places: make([][]byte, MaxPlaces+1)}, disk.ErrTooLarge},
		"many partitions": {&ringpb.AskRequest{Space: uint32(space), Question: []byte("red"),
			Partitions: make([]uint32, disk.MaxPartitions+1)}, disk.ErrTooLarge},
	} {
		err := p.Answer(t.Context(), tc.req,
			func(*ringpb.Verdicts) error { return errors.New("something is answered") })
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", what, err, tc.want)
		}
	}
	withheld := errors.New("withheld")
	p.Withheld = func() error { return withheld }
	req := &ringpb.AskRequest{Space: uint32(space), Question: []byte("red")}
	if err := p.Answer(t.Context(), req,
		func(*ringpb.Verdicts) error { return nil }); !errors.Is(err, withheld) {
		t.Errorf("an answer that is withheld: %v", err)
	}
	p.Withheld, p.view = func() error { return nil }, nil
	if err := p.Answer(t.Context(), req,
		func(*ringpb.Verdicts) error { return nil }); !errors.Is(err, ErrNotReady) {
		t.Errorf("without a ring: %v", err)
	}
}

// A question asked by a ring that a member gave up is asked again, even if this master's store was
// replaced meanwhile and has no ring yet.
func TestReplacedDuringAQuestion(t *testing.T) {
	t.Parallel()
	all := masters(t)
	newer := hashring.New([]string{"m1/a", "m2/b", "m3/c"}, 8, 3, 2)
	all["m2/b"].view = &rings.View{Rings: []*hashring.Ring{newer}, Base: newer}
	p := all["m1/a"]
	for what, now := range map[string]*rings.View{"none": nil, "a newer one": all["m2/b"].view} {
		a, err := p.compile(space, []byte("red"))
		if err != nil {
			t.Fatal(err)
		}
		q := &inquiry{s: p.Queries, v: all["m3/c"].view, a: a, failed: map[string]bool{}}
		p.view = now
		if _, err = q.ask(t.Context(), map[string][]int{"m2/b": {0}}, false); !rings.IsLeft(err) {
			t.Errorf("with %s here: %v", what, err)
		}
	}
}
