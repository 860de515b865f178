package statesync

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// joiner adds a master that has not entered the ring.
func (c *company) joiner(change ...func(i int, o *Options)) *box {
	c.t.Helper()
	b := c.add(change...)
	b.outside = true
	b.open()
	return b
}

// joins runs the joiner until it says that it has all.
func (b *box) joins() {
	b.c.t.Helper()
	if joining, _ := b.Joining(); !joining {
		b.c.t.Errorf("%s says that it has its roots before it began", b.node)
	}
	b.run()
	eventually(b.c.t, b.node+" has its roots", func() error {
		if joining, p := b.Joining(); joining {
			return fmt.Errorf("%+v, %s", p, b.Trouble())
		}
		return nil
	})
}

func TestAJoinerCopiesTheLeadersRoots(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	odd(a.file).write(t, a.file)
	tree{"p": "644 a"}.write(t, a.pillar)
	tree{"f": "644 of another one"}.write(t, b.file)
	j := c.joiner()
	tree{"empty": "600 not", "extra": "644 e"}.write(t, j.file)
	j.joins()
	want := odd(j.file)
	want["extra"] = "644 e"
	expect(t, "file_roots", j.file, want)
	expect(t, "pillar_roots", j.pillar, tree{"p": "644 a"})
	// It is copied once: what is done there later is its own affair.
	tree{"extra": "644 e2"}.write(t, j.file)
	j.leave()
	j.open()
	if joining, _ := j.Joining(); joining {
		t.Error("after a restart it wants to copy again")
	}
	for _, tr := range []Tree{FileRoots, PillarRoots} {
		if err := j.advance(t.Context(), j.trees[tr]); err != nil {
			t.Error(err)
		}
	}
	want["extra"] = "644 e2"
	expect(t, "left alone", j.file, want)
}

func TestAJoinerCopiesTheHead(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 3).settled()
	leader, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 1", "g": "644 1"}.write(t, b.file)
	b.sync(Request{})
	tree{"f": "644 drift of the leader"}.write(t, leader.file)
	j := c.joiner()
	j.joins()
	expect(t, "the head, as others have it", j.file, tree{"f": "644 1", "g": "644 1"})
	if seq, _ := j.Heads(); seq != 1 {
		t.Errorf("head %d", seq)
	}
	// Where all have drifted, it is the leader's roots, and that is drift there as well.
	for _, m := range append(c.boxes[1:3], j) {
		tree{"g": "644 drift"}.write(t, m.file)
	}
	k := c.joiner()
	k.joins()
	expect(t, "the leader's", k.file, tree{"f": "644 drift of the leader", "g": "644 1"})
	for _, st := range k.Status(t.Context(), []Tree{FileRoots}, true) {
		if idOf(st.Node) == k.opts.ID &&
			(st.Seq != 1 || st.Drifted != 1 || st.Drift[0].Path != "f") {
			t.Errorf("%+v", st)
		}
	}
	// It takes part like the others.
	tree{"h": "644 2"}.write(t, b.file)
	if r := b.sync(Request{Force: true}); r.of(t, k.opts.ID).Kept != 1 {
		t.Errorf("%+v", r)
	}
	expect(t, "like b", k.file, read(t, b.file))
}

func TestAJoinersLeaderDies(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	want := tree{}
	for i := range 30 {
		want[fmt.Sprintf("f%d", i)] = "644 " + strings.Repeat(string(rune('a'+i)), 300_000)
	}
	want.write(t, a.file)
	want.write(t, b.file)
	fetched := 0
	j := c.joiner(func(i int, o *Options) {
		if i == 2 {
			o.fault = func(step string) error {
				if step != "fetched" {
					return nil
				}
				if fetched++; fetched == 20 {
					a.leave()
					c.mu.Lock()
					c.leader = b.node
					c.mu.Unlock()
				}
				return nil
			}
		}
	})
	j.joins()
	expect(t, "all of it", j.file, want)
	if fetched < 60 || fetched > 65 {
		t.Errorf("%d pieces fetched; what had arrived is to be used", fetched)
	}
}

func TestSharedRootsAreNotCopied(t *testing.T) {
	t.Parallel()
	shared := func(_ int, o *Options) { o.Isolated = false }
	c := newCompany(t, 2, shared).settled()
	tree{"f": "644 1"}.write(t, c.boxes[0].file)
	j := c.joiner(shared)
	j.joins()
	expect(t, "nothing copied", j.file, tree{})
	// Where another master has roots of its own, they are what is copied, whatever the joiner's own
	// option says.
	c.boxes[1].Store.opts.Isolated = true
	tree{"f": "644 own"}.write(t, c.boxes[1].file)
	k := c.joiner(shared)
	k.joins()
	expect(t, "copied", k.file, tree{"f": "644 own"})
}

func TestTheFirstMasterCopiesNothing(t *testing.T) {
	t.Parallel()
	c := &company{t: t, heads: make(map[Tree]Head)}
	a := c.joiner()
	tree{"f": "644 1"}.write(t, a.file)
	c.leader = a.node
	a.joins()
	expect(t, "as it was", a.file, tree{"f": "644 1"})
}

func TestTwoJoinersDoNotCopyEachOther(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 1).settled()
	tree{"f": "644 right"}.write(t, c.boxes[0].file)
	j, k := c.joiner(), c.joiner()
	tree{"f": "644 j"}.write(t, j.file)
	tree{"f": "644 k"}.write(t, k.file)
	// The leader can't be asked for a while.
	c.boxes[0].leave()
	j.run()
	k.run()
	eventually(t, "they say so", func() error {
		if !strings.Contains(j.Trouble(), errNobody.Error()) ||
			!strings.Contains(k.Trouble(), errNobody.Error()) {
			return errors.New(j.Trouble() + k.Trouble())
		}
		return nil
	})
	c.boxes[0].open()
	for _, b := range []*box{j, k} {
		eventually(t, "the leader's", has(b.file, tree{"f": "644 right"}))
	}
}

func TestAJoinerWithAFullDisk(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 1).settled()
	tree{"f": "644 " + strings.Repeat("x", 5000)}.write(t, c.boxes[0].file)
	j := c.joiner(func(_ int, o *Options) {
		o.room = func(string) (uint64, error) {
			return 100,
				nil
		}
	})
	tree{"f": "644 old"}.write(t, j.file)
	j.run()
	eventually(t, "it says so", func() error {
		if joining, _ := j.Joining(); !joining || !strings.Contains(j.Trouble(), "no room") {
			return errors.New(j.Trouble())
		}
		return nil
	})
	expect(t, "as it was", j.file, tree{"f": "644 old"})
	if _, err := os.Stat(filepath.Join(j.file, StagingDir)); !os.IsNotExist(err) {
		t.Errorf("staging folder: %v", err)
	}
}
