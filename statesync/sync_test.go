package statesync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"
)

// odd is a tree with all that can be in one.
func odd(dir string) tree {
	return tree{
		"top.sls":                         "644 base:",
		"empty":                           "600 ",
		"script.sh":                       "755 #!/bin/sh",
		"nobody":                          "400 r",
		"web/":                            "755",
		"web/init.sls":                    "640 nginx:",
		"web/deep/":                       "750",
		"web/deep/er/":                    "755",
		"web/deep/er/x":                   "644 x",
		"hollow/":                         "711",
		"with space/":                     "755",
		"with space/a b":                  "644 s",
		"grün/":                           "755",
		"grün/ü — 日本":                     "644 utf8",
		"new\nline":                       "644 n",
		"not\xffutf8":                     "644 b",
		"-dash":                           "644 d",
		"link":                            "-> web/init.sls",
		"web/up":                          "-> ../top.sls",
		"web/folder":                      "-> deep/er",
		"dangling":                        "-> nowhere/at/all",
		"absolute":                        "-> " + dir + "/web",
		strings.Repeat("n", 255):          "644 long",
		".hidden":                         "644 h",
		"web/deep/er/back":                "-> ../../../top.sls",
		"web/" + strings.Repeat("é", 100): "644 é",
	}
}

func TestSyncMakesEveryOddThingTheSame(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 3).settled()
	src := c.boxes[0]
	odd(src.file).write(t, src.file)
	// What can't be synced is listed and left out.
	tree{"outside": "-> ../../etc/passwd", "web/out": "-> /etc/passwd", "sly": "-> web/../../x",
		".git/HEAD": "644 ref"}.write(t, src.file)
	r := src.sync(Request{})
	if !r.Published || r.Seq != 1 {
		t.Errorf("result %+v", r)
	}
	own := r.of(t, "m1")
	if len(own.Skipped) != 3 || !strings.Contains(strings.Join(own.Skipped, "\n"),
		`"outside": the link leads out of the root`) {
		t.Errorf("skipped: %q", own.Skipped)
	}
	for _, b := range c.boxes[1:] {
		expect(t, b.node, b.file, odd(b.file)) // the absolute link leads into the own root
		if rep := r.of(t, b.opts.ID); rep.Added != len(odd("")) || rep.Error != "" ||
			rep.Bytes == 0 || rep.Seq != 1 {
			t.Errorf("%s: %s, %d bytes", b.node, counts(rep), rep.Bytes)
		}
		if !strings.Contains(b.log.String(), fmt.Sprintf("state-sync file_roots installed %d items",
			len(odd("")))) {
			t.Errorf("the log of %s does not say what was installed", b.node)
		}
		if _, err := os.Stat(filepath.Join(b.file, StagingDir)); !os.IsNotExist(err) {
			t.Errorf("%s: the staging folder is still there: %v", b.node, err)
		}
	}
}

func TestOnlyDifferencesTravel(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	big := "644 " + strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	tree{"big": big, "gone": "644 g", "old/": "755", "old/x": "644 x", "mode": "644 m"}.write(t,
		a.file)
	if r := a.sync(Request{}).of(t, "m2"); r.Bytes < 1<<20 {
		t.Errorf("first: %d bytes", r.Bytes)
	}
	if r := a.sync(Request{}); r.Published || r.Seq != 1 || r.of(t, "m2").Error != "" {
		t.Errorf("nothing changed: %+v", r)
	}
	for _, gone := range []string{"gone", "old"} {
		if err := os.RemoveAll(filepath.Join(a.file, gone)); err != nil {
			t.Fatal(err)
		}
	}
	tree{"little": "644 l", "mode": "600 m", "copy of big": big}.write(t, a.file)
	r := a.sync(Request{})
	rep := r.of(t, "m2")
	if r.Seq != 2 || rep.Bytes == 0 || rep.Bytes > 4096 ||
		counts(rep) != "+2 ~1 -3 drift 0 kept 0 " {
		t.Errorf("second: %s with %d bytes", counts(rep), rep.Bytes)
	}
	expect(t, "b", b.file, tree{"big": big, "little": "644 l", "mode": "600 m", "copy of big": big})
}

// The other way round: what is in the roots already need not travel.
func TestEqualTreesMoveOnlyTheManifest(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	big := "644 " + strings.Repeat("x", 1<<20)
	for i, b := range c.boxes {
		tree{"big": big, fmt.Sprintf("extra%d", i): "644 e"}.write(t, b.file)
	}
	rep := c.boxes[0].sync(Request{}).of(t, "m2")
	if rep.Bytes > 4096 || counts(rep) != "+1 ~0 -0 drift 1 kept 0 " {
		t.Errorf("%s with %d bytes", counts(rep), rep.Bytes)
	}
}

func TestFirstSyncAddsReplacesAndLeavesExtras(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 new", "d/": "755", "d/x": "644 x", "was dir": "644 now file", "was file/": "755",
		"was file/y": "644 y", "link": "-> f"}.write(t, a.file)
	tree{"f": "644 old", "extra": "644 e", "d/": "755", "d/extra": "644 de", "was dir/": "755",
		"was dir/z": "644 z", "was file": "644 wf", "link": "644 no link"}.write(t, b.file)
	rep := a.sync(Request{}).of(t, "m2")
	// "was dir" holds an extra file, so it can't become a file.
	want := tree{
		"f": "644 new", "extra": "644 e", "d/": "755", "d/x": "644 x", "d/extra": "644 de",
		"was dir/": "755", "was dir/z": "644 z",
		"was file/": "755", "was file/y": "644 y", "link": "-> f",
	}
	expect(t, "b", b.file, want)
	if rep.Kept != 3 || len(rep.KeptIn) != 1 || rep.Drifted != 4 {
		t.Errorf("%s, kept in %v, drift %v", counts(rep), rep.KeptIn, rep.Drift)
	}
	expect(t, "kept aside", rep.KeptIn[0],
		tree{"f": "644 old", "was file": "644 wf", "link": "644 no link"})
	// With Force it all becomes equal.
	rep = a.sync(Request{Force: true}).of(t, "m2")
	expect(t, "b, forced", b.file, read(t, a.file))
	if rep.Drifted != 0 || rep.Kept != 3 {
		t.Errorf("forced: %s", counts(rep))
	}
	expect(t, "kept aside", rep.KeptIn[0], tree{"extra": "644 e", "d/": "700", "d/extra": "644 de",
		"was dir/": "700", "was dir/z": "644 z"})
}

func TestDriftIsListedAndLeft(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	first := tree{"edited": "644 1", "deleted": "644 1", "both": "644 1", "mode": "644 1",
		"same": "644 1", "gone": "644 1", "gone edited": "644 1", "d/": "755", "d/x": "644 1"}
	first.write(t, a.file)
	a.sync(Request{})
	expect(t, "first", b.file, first)
	// On b somebody works by hand.
	tree{"edited": "644 by hand", "both": "644 by hand", "mode": "600 1", "added": "644 by hand",
		"gone edited": "644 by hand", "new/": "755", "new/a": "644 x", "new/b": "644 x"}.write(t,
		b.file)
	for _, gone := range []string{"deleted"} {
		if err := os.Remove(filepath.Join(b.file, gone)); err != nil {
			t.Fatal(err)
		}
	}
	// And a goes on.
	tree{"both": "644 2", "same": "644 2", "more": "644 2"}.write(t, a.file)
	for _, gone := range []string{"gone", "gone edited", "d"} {
		if err := os.RemoveAll(filepath.Join(a.file, gone)); err != nil {
			t.Fatal(err)
		}
	}
	rep := a.sync(Request{}).of(t, "m2")
	want := tree{
		"edited": "644 by hand", "both": "644 by hand", "mode": "600 1", "added": "644 by hand",
		"gone edited": "644 by hand",
		"new/":        "755", "new/a": "644 x", "new/b": "644 x", "same": "644 2", "more": "644 2",
	}
	expect(t, "b", b.file, want)
	var got []string
	for _, d := range rep.Drift {
		got = append(got, d.What+" "+d.Path)
	}
	slices.Sort(got)
	drift := []string{"added added", "added new/", "deleted deleted", "edited both",
		"edited edited", "edited gone edited", "edited mode"}
	if !slices.Equal(got, drift) || rep.Drifted != 9 || counts(rep) != "+1 ~1 -3 drift 9 kept 0 " {
		t.Errorf("%s: %q", counts(rep), got)
	}
	// It stays drift, and any master tells so.
	for _, st := range a.Status(t.Context(), []Tree{FileRoots}, true) {
		if idOf(st.Node) == "m2" && (st.Drifted != 9 || st.Seq != 2 || st.Behind) ||
			idOf(st.Node) == "m1" && st.Drifted != 0 {
			t.Errorf("status: %+v", st)
		}
	}
	rep = a.sync(Request{Force: true}).of(t, "m2")
	expect(t, "b, forced", b.file, read(t, a.file))
	if rep.Kept != 6 || len(rep.KeptIn) != 1 {
		t.Errorf("forced: %s in %v", counts(rep), rep.KeptIn)
	}
	expect(t, "kept aside", rep.KeptIn[0], tree{"edited": "644 by hand", "both": "644 by hand",
		"added": "644 by hand", "gone edited": "644 by hand", "new/": "700", "new/a": "644 x",
		"new/b": "644 x"})
	if rep = a.sync(Request{}).of(t, "m2"); rep.Drifted != 0 {
		t.Errorf("afterwards: %s", counts(rep))
	}
}

func TestSyncAsksForAMasterAtTheHead(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 3).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 a"}.write(t, a.file)
	b.leave()
	if rep := a.sync(Request{}).of(t, "m2"); !rep.Away {
		t.Errorf("the absent one: %s", counts(rep))
	}
	b.open()
	_, err := b.Sync(t.Context(), Request{Trees: []Tree{FileRoots}}, nil)
	if err == nil || !strings.Contains(err.Error(),
		"this master has head 0, and head 1 was published by m1") {
		t.Errorf("a master that is behind publishes: %v", err)
	}
	b.run()
	eventually(t, "b catches up by itself", has(b.file, tree{"f": "644 a"}))
	tree{"f": "644 b"}.write(t, b.file)
	eventually(t, "b is at the head", func() error {
		if seq, _ := b.Heads(); seq != 1 {
			return fmt.Errorf("head %d", seq)
		}
		return nil
	})
	if r := b.sync(Request{}); r.Seq != 2 || r.of(t, "m1").Changed != 1 {
		t.Errorf("%+v", r)
	}
	expect(t, "a", a.file, tree{"f": "644 b"})
}

func TestTestChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 1", "g": "644 1"}.write(t, a.file)
	a.sync(Request{})
	tree{"f": "644 2", "h": "644 2"}.write(t, a.file)
	if err := os.Remove(filepath.Join(a.file, "g")); err != nil {
		t.Fatal(err)
	}
	r := a.sync(Request{Test: true})
	rep := r.of(t, "m2")
	if r.Published || r.Seq != 1 || counts(rep) != "+1 ~1 -1 drift 0 kept 0 " ||
		!slices.Equal(rep.Changes, []string{"~ base:0 f", "- base:0 g", "+ base:0 h"}) {
		t.Errorf("%+v", rep)
	}
	expect(t, "b", b.file, tree{"f": "644 1", "g": "644 1"})
	if h, _ := a.Head(FileRoots); h.Seq != 1 {
		t.Errorf("head %d", h.Seq)
	}
}

// With force a master that is behind publishes its own roots, and of all others what the head has:
// those of other environments, and those that it doesn't know.
func TestForceTakesBackNoOtherRoots(t *testing.T) {
	t.Parallel()
	more := func(i int, o *Options) {
		top := filepath.Dir(o.File[0].Dirs[0])
		o.File = append(o.File, Env{Name: "dev", Dirs: []string{top + "/dev"}})
		if i != 1 {
			o.File = append(o.File, Env{Name: "qa", Dirs: []string{top + "/qa"}})
		}
	}
	c := newCompany(t, 3, more).settled()
	a, b, third := c.boxes[0], c.boxes[1], c.boxes[2]
	top := func(b *box) string { return filepath.Dir(b.file) }
	tree{"srv/b": "644 1", "dev/d": "644 1", "qa/q": "644 1"}.write(t, top(a))
	a.sync(Request{})
	b.leave()
	tree{"srv/b": "644 2", "dev/d": "644 2", "qa/q": "644 2", "qa/new": "644 2"}.write(t, top(a))
	a.sync(Request{})
	b.open()
	refused := func(req Request, want string) {
		t.Helper()
		req.Trees, req.Force = []Tree{FileRoots}, true
		if _, err := b.Sync(t.Context(), req, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	a.leave()
	third.leave()
	refused(Request{Env: "dev"}, "all environments but dev would go back to head 1")
	refused(Request{}, "root qa:0 would go back to head 1")
	a.open()
	third.open()
	tree{"d": "644 3"}.write(t, top(b)+"/dev")
	published := Request{Env: "dev", Force: true}
	shown := published
	shown.Test = true
	if rep := b.sync(shown).of(t, "m1"); !slices.Equal(rep.Changes, []string{"~ dev:0 d"}) {
		t.Errorf("would change %q", rep.Changes)
	}
	b.sync(published)
	for _, one := range c.boxes {
		expect(t, one.node, one.file, tree{"b": "644 2"})
		expect(t, one.node, top(one)+"/dev", tree{"d": "644 3"})
	}
	qa := tree{"q": "644 2", "new": "644 2"}
	expect(t, "an environment that b lacks", top(a)+"/qa", qa)
	b.leave()
	tree{"srv/b": "644 4", "dev/d": "644 4", "qa/q": "644 4"}.write(t, top(a))
	a.sync(Request{})
	b.open()
	b.sync(Request{Force: true})
	qa["q"] = "644 4"
	expect(t, "an environment that b lacks", top(a)+"/qa", qa)
	expect(t, "b's own", a.file, tree{"b": "644 2"})
}

// A majority must hold the contents before there is a head.
func TestNoMajorityNoHead(t *testing.T) {
	t.Parallel()
	full := func(i int, o *Options) {
		if i > 0 {
			o.room = func(string) (uint64, error) { return 10, nil }
		}
	}
	c := newCompany(t, 3, full).settled()
	a := c.boxes[0]
	tree{"f": "644 " + strings.Repeat("x", 5000)}.write(t, a.file)
	_, err := a.Sync(t.Context(), Request{Trees: []Tree{FileRoots}}, nil)
	if !errors.Is(err, ErrMajority) || !strings.Contains(err.Error(), "1 of 3") ||
		!strings.Contains(err.Error(), "m3: no room") {
		t.Errorf("got %v", err)
	}
	if _, ok := a.Head(FileRoots); ok {
		t.Error("a head was published")
	}
	// With one of the two it goes, and the other says what is wrong.
	c.boxes[1].Store.opts.room = room
	r := a.sync(Request{})
	if r.of(t, "m2").Added != 1 || !strings.Contains(r.of(t, "m3").Error,
		"no room for the new contents") {
		t.Errorf("%+v", r.Reports)
	}
}

// The seconds of a peer are those that its operator waits for it: also what comes before the
// install, and where a peer had the contents before the head was published.
func TestSecondsCountFromTheBeginning(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 3).settled()
	a := c.boxes[0]
	tree{"f": "644 a"}.write(t, a.file)
	var agreed time.Time
	a.Store.opts.fault = func(step string) error {
		if step == "publish" {
			eventually(t, "all hold the contents", func() error {
				for _, b := range c.boxes {
					if !b.blobs.has(sumOf([]byte("a")), 1) {
						return errors.New(b.node + " doesn't")
					}
				}
				return nil
			})
			<-time.After(300 * time.Millisecond) // far longer than an install takes
			agreed = time.Now()
		}
		return nil
	}
	began := time.Now()
	r := a.sync(Request{})
	least, most := agreed.Sub(began).Seconds(), time.Since(began).Seconds()
	for _, rep := range r.Reports {
		if rep.Seconds < least || rep.Seconds > most {
			t.Errorf("%s: %v s, the head was agreed on after %v s and all done after %v s",
				rep.Node, rep.Seconds, least, most)
		}
	}
}

func TestTwoPublishersAtOnce(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 3).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 a"}.write(t, a.file)
	tree{"f": "644 b"}.write(t, b.file)
	a.Store.opts.fault = func(step string) error {
		if step == "publish" {
			b.sync(Request{})
		}
		return nil
	}
	_, err := a.Sync(t.Context(), Request{Trees: []Tree{FileRoots}}, nil)
	if !errors.Is(err, ErrStale) {
		t.Errorf("got %v", err)
	}
}

func TestEnvironments(t *testing.T) {
	t.Parallel()
	more := func(i int, o *Options) {
		top := filepath.Dir(o.File[0].Dirs[0])
		if i != 2 {
			o.File = append(o.File, Env{Name: "dev", Dirs: []string{top + "/dev1", top + "/dev2"}})
		}
		o.Pillar = append(o.Pillar, Env{Name: "__env__",
			Dirs: []string{top + "/envs/__env__/pillar"}})
	}
	c := newCompany(t, 3, more).settled()
	a, b, lacks := c.boxes[0], c.boxes[1], c.boxes[2]
	top := func(b *box) string { return filepath.Dir(b.file) }
	tree{"srv/b": "644 1", "dev1/d": "644 1", "dev2/d": "644 2", "envs/x/pillar/p": "644 px",
		"envs/y/pillar/p": "644 py", "envs/base/pillar/p": "644 no"}.write(t, top(a))
	r := a.sync(Request{Env: "dev"})
	expect(t, "only dev", b.file, tree{})
	expect(t, "the first root", top(b)+"/dev1", tree{"d": "644 1"})
	expect(t, "the second root", top(b)+"/dev2", tree{"d": "644 2"})
	if m := r.of(t, "m3").Missing; !slices.Equal(m, []Scope{{"dev", 0}, {"dev", 1}}) {
		t.Errorf("missing: %v", m)
	}
	a.sync(Request{})
	expect(t, "base too", b.file, tree{"b": "644 1"})
	expect(t, "base too", lacks.file, tree{"b": "644 1"})
	// One that lacks an environment does not take it away from the others.
	tree{"b": "644 3"}.write(t, lacks.file)
	lacks.sync(Request{})
	expect(t, "from the third", a.file, tree{"b": "644 3"})
	expect(t, "still there", top(b)+"/dev1", tree{"d": "644 1"})
	tree{"d": "644 again"}.write(t, top(b)+"/dev1")
	if r := b.sync(Request{Env: "dev"}).of(t, "m1"); counts(r) != "+0 ~1 -0 drift 0 kept 0 " {
		t.Errorf("it is still known as synced: %s", counts(r))
	}
	if _, err := a.Sync(t.Context(), Request{Trees: []Tree{FileRoots}, Env: "nosuch"},
		nil); err == nil {
		t.Error("an unknown environment is taken")
	}
	a.sync(Request{Trees: []Tree{PillarRoots}})
	expect(t, "environments by name", top(b)+"/envs",
		tree{"x/": made, "x/pillar/": made, "x/pillar/p": "644 px", "y/": made,
			"y/pillar/": made, "y/pillar/p": "644 py"})
}

// anyEnvs has each master take the environments of its pillar from the folders in envs.
func anyEnvs(_ int, o *Options) {
	o.Pillar = []Env{{Name: anyEnv,
		Dirs: []string{filepath.Dir(o.File[0].Dirs[0]) + "/envs/" + anyEnv + "/pillar"}}}
}

func (b *box) envs() string { return filepath.Dir(b.file) + "/envs" }

// An environment of "__env__" that is deleted on one master is deleted on all, also on one that was
// away at the time, and no later sync brings it back.
func TestADeletedEnvironmentIsDeletedEverywhere(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 3, anyEnvs).settled()
	a, b, away := c.boxes[0], c.boxes[1], c.boxes[2]
	pillar := Request{Trees: []Tree{PillarRoots}}
	tree{"dev/pillar/p": "644 d", "dev/pillar/d/q": "644 d", "prod/pillar/p": "644 p"}.write(t,
		a.envs())
	a.sync(pillar)
	expect(t, "b", b.envs(), read(t, a.envs()))
	tree{"dev/pillar/mine": "644 m"}.write(t, b.envs())
	away.leave()
	if err := os.RemoveAll(a.envs() + "/dev"); err != nil {
		t.Fatal(err)
	}
	for _, st := range a.Status(t.Context(), pillar.Trees, true) {
		if idOf(st.Node) == "m1" && (st.Drifted != 3 || st.Drift[0].What != DriftDeleted) {
			t.Errorf("status before the sync: %d drifted, %+v", st.Drifted, st.Drift)
		}
	}
	prod := tree{"prod/": made, "prod/pillar/": made, "prod/pillar/p": "644 p"}
	if rep := a.sync(pillar).of(t, "m2"); counts(rep) != "+0 ~0 -3 drift 1 kept 0 " {
		t.Errorf("b: %s", counts(rep))
	}
	mine := maps.Clone(prod)
	maps.Copy(mine, tree{"dev/": made, "dev/pillar/": made, "dev/pillar/mine": "644 m"})
	expect(t, "what was added on b stays", b.envs(), mine)
	if rep := a.sync(Request{Trees: pillar.Trees, Force: true}).of(t, "m2"); rep.Kept != 1 {
		t.Errorf("b, forced: %s", counts(rep))
	}
	if err := os.RemoveAll(b.envs() + "/dev"); err != nil { // what is left are the kept files
		t.Fatal(err)
	}
	tree{"prod/pillar/p": "644 p2"}.write(t, b.envs())
	prod["prod/pillar/p"] = "644 p2"
	b.sync(pillar) // it knows that there was an environment more
	away.open()
	if err := away.advance(t.Context(), away.trees[PillarRoots]); err != nil {
		t.Fatal(err)
	}
	for _, b := range c.boxes {
		expect(t, b.node, b.envs(), prod)
		if r := b.sync(pillar); r.Published {
			t.Errorf("%s: equal roots are published again", b.node)
		}
	}
	tree{"dev/pillar/p": "644 new"}.write(t, b.envs())
	b.sync(pillar)
	expect(t, "made again", a.envs(), read(t, b.envs()))
}

// The folder of all environments, or of one, that is not mounted is no order to delete.
func TestVanishedEnvironmentsDeleteNothing(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]func(envs string) error{
		"the folder of all": func(envs string) error { return os.Rename(envs, envs+".gone") },
		"an empty folder of all": func(envs string) error {
			return errors.Join(os.Rename(envs, envs+".gone"), os.Mkdir(envs, 0o755))
		},
		"an empty folder of one": func(envs string) error {
			return errors.Join(os.Rename(envs+"/dev", envs+".gone"), os.Mkdir(envs+"/dev", 0o755))
		},
		"a link that leads nowhere": func(envs string) error {
			return errors.Join(os.Rename(envs+"/dev", envs+".gone"),
				os.Symlink("/nonexistent", envs+"/dev"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCompany(t, 2, anyEnvs).settled()
			a, b := c.boxes[0], c.boxes[1]
			tree{"dev/pillar/p": "644 d", "prod/pillar/p": "644 p"}.write(t, a.envs())
			a.sync(Request{Trees: []Tree{PillarRoots}})
			had := read(t, b.envs())
			if err := vanish(a.envs()); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Sync(t.Context(), Request{Trees: []Tree{PillarRoots}}, nil); err == nil ||
				!strings.Contains(err.Error(), "of dev:0 is missing") {
				t.Errorf("got %v", err)
			}
			expect(t, "b", b.envs(), had)
		})
	}
}

// An environment that other masters sync is not deleted by a master that has "__env__" since today.
func TestANewWildcardDeletesNothing(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2, func(i int, o *Options) {
		if i == 0 {
			anyEnvs(i, o)
		}
	}).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"dev/pillar/p": "644 d"}.write(t, a.envs())
	a.sync(Request{Trees: []Tree{PillarRoots}})
	b.leave()
	anyEnvs(1, &b.opts)
	b.open()
	tree{"prod/pillar/p": "644 p"}.write(t, b.envs())
	b.sync(Request{Trees: []Tree{PillarRoots}})
	all := tree{"dev/": made, "dev/pillar/": made, "dev/pillar/p": "644 d", "prod/": made,
		"prod/pillar/": made, "prod/pillar/p": "644 p"}
	expect(t, "a", a.envs(), all)
}

// Environments that are deleted again and again do not make the manifest one that no master reads.
func TestDeletedEnvironmentsAreForgottenInTime(t *testing.T) {
	t.Parallel()
	a := newCompany(t, 1, anyEnvs).settled().boxes[0]
	tree{"prod/pillar/p": "644 p"}.write(t, a.envs())
	rec := &record{manifest: &Manifest{Tree: PillarRoots}}
	for i := range maxScopes {
		sc := Scope{Env: fmt.Sprintf("e%05d", i)}
		dir, _ := a.dirOf(PillarRoots, sc)
		rec.roots = append(rec.roots, installedRoot{sc, dir})
		rec.manifest.Roots = append(rec.manifest.Roots, Root{Scope: sc})
	}
	m, err := a.capture(t.Context(), PillarRoots, "", false, rec, &Report{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err = DecodeManifest(m.Encode()); err != nil {
		t.Fatal(err)
	}
	if items, ok := m.Root(Scope{Env: "prod"}); len(items) != 1 || !ok {
		t.Errorf("prod has %+v, %v", items, ok)
	}
}

// A root that has vanished or is empty (not mounted, say) is no order to delete all of it.
func TestAVanishedRootDeletesNothing(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 1"}.write(t, a.file)
	a.sync(Request{})
	if err := os.Rename(a.file, a.file+".gone"); err != nil {
		t.Fatal(err)
	}
	refused := func(want string) {
		t.Helper()
		if _, err := a.Sync(t.Context(), Request{Trees: []Tree{FileRoots}}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		expect(t, "b", b.file, tree{"f": "644 1"})
	}
	refused("is missing")
	if err := os.Mkdir(a.file, 0o755); err != nil {
		t.Fatal(err)
	}
	refused("is empty, and the other masters have 1 items of it: mount its file system")
	a.sync(Request{Force: true})
	expect(t, "emptied on purpose", b.file, tree{})
	a.sync(Request{})
}

func TestSharedRootsAreNotSynced(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2, func(_ int, o *Options) { o.Isolated = false }).settled()
	if _, err := c.boxes[0].Sync(t.Context(), Request{Trees: []Tree{FileRoots}},
		nil); !errors.Is(err, errNotOwn) {
		t.Errorf("got %v", err)
	}
}

// A source that dies or sends rubbish is left for another one.
func TestOtherSourcesAreAsked(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 4).settled()
	a, b, late := c.boxes[0], c.boxes[1], c.boxes[3]
	late.leave()
	want := tree{}
	for i := range 40 {
		want[fmt.Sprintf("f%d", i)] = "644 " + strings.Repeat(string(rune('a'+i%26)), 300_000+i)
	}
	want.write(t, a.file)
	a.sync(Request{})
	// b holds damaged contents.
	for sum := range maps.Keys(b.trees[FileRoots].record().manifest.sums()) {
		if err := os.WriteFile(b.blobs.path(sum), []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fetched := 0
	late.opts.fault = func(step string) error {
		if step != "fetched" {
			return nil
		}
		if fetched++; fetched == 25 {
			a.leave() // in the middle
		}
		return nil
	}
	late.open()
	late.run()
	eventually(t, "it gets all of it from the third", has(late.file, want))
	if fetched < 25 {
		t.Errorf("%d pieces fetched", fetched)
	}
}

func TestASyncThatIsGivenUpEnds(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a := c.boxes[0]
	tree{"f": "644 1"}.write(t, a.file)
	ctx, cancel := context.WithCancel(t.Context())
	a.Store.opts.fault = func(step string) error {
		if step == "captured" {
			cancel()
		}
		return nil
	}
	if _, err := a.Sync(ctx, Request{Trees: []Tree{FileRoots}}, nil); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, ok := a.Head(FileRoots); ok {
		t.Error("a head was published")
	}
}

// After the masters were taken back to an older state (cluster.recover), what that says holds.
func TestAHeadThatWasTakenBack(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 1"}.write(t, a.file)
	a.sync(Request{})
	first, _ := a.Head(FileRoots)
	tree{"f": "644 2"}.write(t, a.file)
	a.sync(Request{})
	c.mu.Lock()
	c.heads[FileRoots] = first
	c.mu.Unlock()
	b.run()
	eventually(t, "the older head", has(b.file, tree{"f": "644 1"}))
	if _, err := a.Sync(t.Context(), Request{Trees: []Tree{FileRoots}}, nil); err == nil ||
		!strings.Contains(err.Error(), "force=True publishes") {
		t.Errorf("got %v", err)
	}
	a.sync(Request{Force: true})
	eventually(t, "this master's", has(b.file, tree{"f": "644 2"}))
}

// A source that was started just now is not known as alive everywhere yet.
func TestTheLinkBackMayComeLater(t *testing.T) {
	t.Parallel()
	c := newCompany(t, 2).settled()
	a, b := c.boxes[0], c.boxes[1]
	tree{"f": "644 1"}.write(t, a.file)
	c.mu.Lock()
	a.away = true
	c.mu.Unlock()
	back := time.AfterFunc(300*time.Millisecond, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		a.away = false
	})
	defer back.Stop()
	if rep := a.sync(Request{}).of(t, "m2"); rep.Added != 1 {
		t.Errorf("%s", counts(rep))
	}
	expect(t, "b", b.file, tree{"f": "644 1"})
}

// waitsIn reports whether a goroutine with all these in its stack waits for a mutex.
func waitsIn(frames ...string) bool {
	var all strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2) // in full, with states
	for one := range strings.SplitSeq(all.String(), "\n\n") {
		lacks := func(frame string) bool { return !strings.Contains(one, frame) }
		if strings.Contains(one, "[sync.Mutex.Lock") && !slices.ContainsFunc(frames, lacks) {
			return true
		}
	}
	return false
}

// Who asks while somebody else's install ends gets the report of that install, complete.
func TestReportsOfInstallsAreWhole(t *testing.T) {
	t.Parallel()
	var b *box
	asked := make(chan *Report, 1)
	c := newCompany(t, 2, func(i int, o *Options) {
		if i != 1 {
			return
		}
		o.OnInstalled = func(tree Tree) {
			go func() {
				r, err := b.catchUp(b.c.t.Context(), b.trees[tree], nil)
				if err != nil {
					t.Error(err)
				}
				asked <- r
			}()
			end := time.Now().Add(30 * time.Second)
			for len(asked) == 0 && !waitsIn("TestReportsOfInstallsAreWhole", ").installed(") {
				if time.Now().After(end) {
					t.Error("the other one did not look at the record meanwhile")
					return
				}
				<-time.After(time.Millisecond)
			}
		}
	}).settled()
	b = c.boxes[1]
	tree{"top.sls": "644 t"}.write(t, c.boxes[0].file)
	c.boxes[0].sync(Request{})
	if r := <-asked; r == nil || counts(*r) != "+1 ~0 -0 drift 0 kept 0 " {
		t.Errorf("told %+v", r)
	}
	if log := b.log.String(); strings.Count(log, "state-sync file_roots installed 1 items") != 1 {
		t.Error("the log does not say once what was installed")
	}
}
