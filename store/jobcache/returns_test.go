package jobcache

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"clustermaster/store/memory"
	"clustermaster/store/ringstore"
)

// TestReturnsCountDecoded: returns are refused for what they take once they are decoded.
func TestReturnsCountDecoded(t *testing.T) {
	c := open(t, 86400)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20)) // 4 MB of an answer
	for _, id := range []string{"web1", "web2"} {
		if _, err := c.SaveReturn(c.ctx, jid, id, Return{Return: raw(t, slices.Repeat([]any{[]any{}}, 300_000))},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	var refused *memory.AnswerError
	if got, err := c.Returns(c.ctx, jid); !errors.As(err, &refused) {
		t.Errorf("%d returns, %v", len(got), err)
	}
}

// counted is a store that counts the returns that are read from it and refuses lists above a size.
type counted struct {
	*ringstore.Store
	gets  chan string
	lists int
	most  int // records of one list; 0: any number
}

func (c *counted) Get(ctx context.Context, k ringstore.Key) (ringstore.Record, bool, error) {
	c.gets <- k.Name
	return c.Store.Get(ctx, k)
}

func (c *counted) List(ctx context.Context, space ringstore.Space, place,
	prefix string) ([]ringstore.Record, error) {
	c.lists++
	list, err := c.Store.List(ctx, space, place, prefix)
	if c.most > 0 && len(list) > c.most {
		return nil, fmt.Errorf("list: %w", ringstore.ErrTooLarge)
	}
	return list, err
}

func TestOnlyTheWantedReturnsAreRead(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	store := &counted{Store: c.store, gets: make(chan string, 1000)}
	c.Cache = New(store, 86400, c.Cache.now, nil)
	const n = 50
	var all []string
	for i := range n {
		id := fmt.Sprintf("web%02d", i)
		if _, err := c.SaveReturn(c.ctx, jid, id,
			Return{Return: raw(t, strings.Repeat("x", i)), Out: id}, nil); err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
	}
	read := func(jid string, ids ...string) (got []string, reads int) {
		t.Helper()
		err := c.ReadReturns(c.ctx, jid, ids, func(id string, r Return) error {
			if r.Out != id {
				t.Errorf("%s got the return of %s", id, r.Out)
			}
			got = append(got, id)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for len(store.gets) > 0 {
			<-store.gets
			reads++
		}
		return got, reads
	}
	silent := make([]string, 0, 500) // far more than returned
	for i := range cap(silent) {
		silent = append(silent, fmt.Sprintf("silent%03d", i))
	}
	for _, tt := range []struct {
		name  string
		jid   string
		ids   []string
		want  []string
		reads int
	}{
		{"nobody", jid, nil, nil, 0},
		{"one", jid, []string{"web07"}, []string{"web07"}, 1},
		{"twice the same, and one that has not returned", jid, []string{"web07", "ghost", "web07"},
			[]string{"web07"}, 2},
		{"an empty id", jid, []string{""}, nil, 1},
		{"all", jid, all, all, n},
		{"two among many that are silent", jid, append(slices.Clone(silent), "web09", "web01"),
			[]string{"web01", "web09"}, 2},
		{"all are silent", jid, silent, nil, 0},
		{"no such job", "20200101000000000000", all, nil, 0},
		{"no job", "", all, nil, 0},
	} {
		if got, reads := read(tt.jid, tt.ids...); !slices.Equal(got, tt.want) || reads != tt.reads {
			t.Errorf("%s: got %v with %d reads, want %v with %d", tt.name, got, reads, tt.want,
				tt.reads)
		}
	}
	if store.lists != 0 {
		t.Errorf("the job was read as a whole %d times", store.lists)
	}
	if err := c.ReadReturns(c.ctx, jid, []string{strings.Repeat("x", ringstore.MaxName)},
		nil); !errors.Is(err, ringstore.ErrTooLarge) {
		t.Errorf("an id as long as a name may be: %v", err)
	}
	for len(store.gets) > 0 {
		<-store.gets
	}
	enough := errors.New("enough")
	if err := c.ReadReturns(c.ctx, jid, all,
		func(string, Return) error { return enough }); !errors.Is(err, enough) ||
		len(store.gets) > readAhead {
		t.Errorf("after the first return %d were read, %v", len(store.gets), err)
	}
}

// TestAJobTooLargeForOneListIsReadAllTheSame: salt-run jobs.lookup_jid has no other way to it.
func TestAJobTooLargeForOneListIsReadAllTheSame(t *testing.T) {
	t.Parallel()
	c := open(t, 86400)
	c.Cache = New(&counted{Store: c.store, gets: make(chan string, 1000), most: 10},
		86400, c.Cache.now, nil)
	for i := range 30 {
		if _, err := c.SaveReturn(c.ctx, jid, fmt.Sprintf("web%02d", i), Return{Return: raw(t, i)},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Returns(c.ctx, jid)
	if err != nil || len(got) != 30 {
		t.Fatalf("%d returns, %v", len(got), err)
	}
	for i := range 30 {
		if v := got[fmt.Sprintf("web%02d", i)].Return; string(v) != string(raw(t, i)) {
			t.Errorf("web%02d returned %x", i, v)
		}
	}
}
