package statesync

import (
	"maps"
	"slices"
	"strings"
)

// opKind is the kind of a step of an install. The numbers are in journals: append only.
type opKind uint8

const (
	opClear  opKind = 1 // remove a file that a folder, or files in its folder, will replace
	opUnmake opKind = 2 // remove a folder that something else will replace
	opMkdir  opKind = 3
	opPut    opKind = 4 // move a staged file or link to its place
	opDelete opKind = 5 // remove a file
	opRmdir  opKind = 6 // remove a folder if it is empty
	opMode   opKind = 7 // at the end, as a folder may become read-only
)

// op is one step on one item. Repeating a step does no harm.
type op struct {
	kind opKind
	path string
	item Item // what it becomes, for opPut, opMkdir and opMode
	old  stat // the present entry; kind 0: none
	keep bool // the present entry is kept aside
}

// planner compares a root's planned contents with its present ones.
type planner struct {
	scope Scope
	force bool
	first bool // there was no sync of this root before
	want  map[string]*Item
	base  map[string]*Item
	live  map[string]*found

	dirs   map[string]bool // folders that will exist
	held   heldSet
	busy   map[string]bool // folders with an entry that stays and is not in the manifest
	ops    []op
	report *Report
}

func byPath(items []Item) map[string]*Item {
	m := make(map[string]*Item, len(items))
	for i := range items {
		m[items[i].Path] = &items[i]
	}
	return m
}

// plan plans the steps for one root and adds to the report. Without force, and after the root's
// first sync, it touches only entries that are as the last sync left them.
func plan(scope Scope, want, base []Item, now *live, first, force bool, report *Report) []op {
	p := &planner{
		scope: scope, force: force, first: first, want: byPath(want), base: byPath(base),
		live: make(map[string]*found, len(now.items)),
		dirs: map[string]bool{"": true}, held: heldPaths(now.held), busy: make(map[string]bool),
		report: report,
	}
	for i := range now.items {
		p.live[now.items[i].Path] = &now.items[i]
	}
	all := make(map[string]struct{}, len(p.live))
	for path := range p.want {
		all[path] = struct{}{}
	}
	for path := range p.base {
		all[path] = struct{}{}
	}
	for path := range p.live {
		all[path] = struct{}{}
	}
	paths := slices.Sorted(maps.Keys(all))
	p.findBusy(paths)
	for _, path := range paths {
		p.item(path)
	}
	// Removals go from the deepest up: first of all those that make way for something else, and
	// other deletions once the new files are in place.
	slices.SortStableFunc(p.ops, func(a, b op) int {
		if a.kind.phase() != b.kind.phase() {
			return a.kind.phase() - b.kind.phase()
		}
		if a.kind.phase() == phaseClear || a.kind == opRmdir || a.kind == opMode {
			return strings.Compare(b.path, a.path)
		}
		return strings.Compare(a.path, b.path)
	})
	return p.ops
}

const phaseClear = 1

func (k opKind) phase() int {
	if k == opUnmake {
		return phaseClear
	}
	return int(k)
}

// same reports whether an item is as it should be. Either may be nil: absent.
func same(a, b *Item) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func (p *planner) at(path string) (want, base, now *Item) {
	if f := p.live[path]; f != nil {
		now = &f.Item
	}
	return p.want[path], p.base[path], now
}

// stays reports whether the present entry at a path is left alone although the manifest differs.
func (p *planner) stays(path string) bool {
	want, base, now := p.at(path)
	switch {
	case p.held.covers(path):
		return true
	case same(want, now), p.force:
		return false
	case p.first:
		return want == nil && now != nil
	}
	return !same(base, now)
}

// findBusy marks the folders that contain an entry that stays.
func (p *planner) findBusy(paths []string) {
	for _, path := range paths {
		if p.live[path] == nil || !p.stays(path) {
			continue
		}
		for dir := parentOf(path); dir != "" && !p.busy[dir]; dir = parentOf(dir) {
			p.busy[dir] = true
		}
	}
}

func (p *planner) item(path string) {
	want, base, now := p.at(path)
	var old stat
	if f := p.live[path]; f != nil {
		old = f.stat
	}
	isDir := now != nil && now.Kind == Dir
	switch {
	case p.held.covers(path):
		if want != nil { // the present entry looks the same
			p.block(path)
		}
		return
	case same(want, now):
		p.dirs[path] = isDir
		return
	case p.stays(path):
		p.dirs[path] = isDir
		p.drift(path, base, now)
		return
	}
	drifted := p.first || !same(base, now) // drifted, but still to be replaced
	keep := drifted && now != nil && !isDir
	switch {
	case want == nil:
		p.remove(path, old, isDir, keep)
		p.report.Deleted++
		p.report.addChange("-", p.scope, path)
		return
	case !p.dirs[parentOf(path)], isDir && want.Kind != Dir && p.busy[path]:
		p.dirs[path] = isDir
		p.block(path)
		return
	}
	p.dirs[path] = want.Kind == Dir
	switch {
	case now == nil:
		p.report.Added++
		p.report.addChange("+", p.scope, path)
	default:
		p.report.Changed++
		p.report.addChange("~", p.scope, path)
	}
	modeOnly := now != nil && now.Kind == want.Kind && now.Size == want.Size &&
		now.Sum == want.Sum && now.Target == want.Target
	switch {
	case modeOnly:
		p.add(op{kind: opMode, path: path, item: *want, old: old})
	case want.Kind == Dir:
		if now != nil {
			p.add(op{kind: opClear, path: path, old: old, keep: keep})
		}
		p.add(op{kind: opMkdir, path: path, item: *want})
		p.add(op{kind: opMode, path: path, item: *want, old: stat{kind: Dir}})
	default:
		if isDir {
			p.add(op{kind: opUnmake, path: path, old: old})
			old = stat{}
		}
		p.add(op{kind: opPut, path: path, item: *want, old: old, keep: keep})
	}
}

// remove deletes an entry that is not in the manifest: early if its folder must go, else at the
// end.
func (p *planner) remove(path string, old stat, isDir, keep bool) {
	early := false
	for dir := parentOf(path); dir != ""; dir = parentOf(dir) {
		if w := p.want[dir]; w != nil && w.Kind != Dir {
			early = !p.busy[dir] // else the folder stays, and this can wait
		}
	}
	o := op{kind: opDelete, path: path, old: old, keep: keep}
	switch {
	case isDir && early:
		o.kind = opUnmake
	case isDir:
		o.kind = opRmdir
	case early:
		o.kind = opClear
	}
	p.add(o)
}

func (p *planner) add(o op) { p.ops = append(p.ops, o) }

func (p *planner) drift(path string, base, now *Item) {
	d := Drift{Scope: p.scope, Path: path, What: DriftEdited}
	switch {
	case now == nil:
		d.What = DriftDeleted
		if base.Kind == Dir {
			d.Path += "/"
		}
	case base == nil:
		d.What = DriftAdded
		if above := p.live[parentOf(path)]; above != nil && p.stays(parentOf(path)) &&
			p.base[parentOf(path)] == nil && p.want[parentOf(path)] == nil {
			p.report.Drifted++ // listed with its folder
			return
		}
		if now.Kind == Dir {
			d.Path += "/"
		}
	}
	p.report.addDrift(d)
}

func (p *planner) block(path string) {
	p.report.addDrift(Drift{Scope: p.scope, Path: path, What: DriftBlocked})
}
