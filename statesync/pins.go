package statesync

import (
	"sync"
	"time"
)

// pinnedFor bounds how long contents are kept for a silent sync.
const pinnedFor = 24 * time.Hour

// pins are the manifests that syncs under way are about to publish or install, one per tree. gc
// keeps their contents. The zero value is ready.
type pins struct {
	mu     sync.Mutex // guards byTree
	byTree map[Tree]pinned
}

type pinned struct {
	sum  Sum
	m    *Manifest
	till time.Time
}

func (p *pins) put(tree Tree, sum Sum, m *Manifest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byTree == nil {
		p.byTree = make(map[Tree]pinned)
	}
	p.byTree[tree] = pinned{sum, m, time.Now().Add(pinnedFor)}
}

// drop removes the pin of a tree if it is for that manifest.
func (p *pins) drop(tree Tree, sum Sum) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byTree[tree].sum == sum {
		delete(p.byTree, tree)
	}
}

// addTo adds the pinned contents to keep.
func (p *pins) addTo(keep map[Sum]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tree, one := range p.byTree {
		if time.Now().After(one.till) {
			delete(p.byTree, tree)
			continue
		}
		keep[one.sum] = struct{}{}
		for sum := range one.m.sums() {
			keep[sum] = struct{}{}
		}
	}
}
