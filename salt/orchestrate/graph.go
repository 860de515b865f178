package orchestrate

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"strings"

	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// graph is the states and their requisites: Salt's DependencyGraph. A state that others have a
// prereq on has a second node, for its trial run.
type graph struct {
	nodes  []*node
	byTag  map[string]int
	lookup map[target][]int // by module and name or id; the module "id" means any
	keys   []target         // in order
	bySLS  map[string][]int
	sls    []string // in order
	edges  int
}

type target struct{ module, name string }

// node is a vertex. Links are grouped by the other end.
type node struct {
	tag     string
	chunk   *chunk
	in, out links
	lowest  *float64 // least order of its dependents, once known
}

type link struct {
	to    int
	kinds []kind
}

type links struct {
	list []link
	at   map[int]int
}

func (l *links) add(to int, k kind) bool {
	i, ok := l.at[to]
	if !ok {
		if l.at == nil {
			l.at = map[int]int{}
		}
		i = len(l.list)
		l.at[to] = i
		l.list = append(l.list, link{to: to})
	}
	for _, have := range l.list[i].kinds {
		if have == k {
			return false
		}
	}
	l.list[i].kinds = append(l.list[i].kinds, k)
	return true
}

func newGraph() *graph {
	return &graph{byTag: map[string]int{}, lookup: map[target][]int{}, bySLS: map[string][]int{}}
}

const tryTag = "_|-__prereq_test__"

func (g *graph) node(tag string, ch *chunk) int {
	i, ok := g.byTag[tag]
	if !ok {
		i = len(g.nodes)
		g.byTag[tag] = i
		g.nodes = append(g.nodes, &node{tag: tag})
	}
	g.nodes[i].chunk = ch
	return i
}

// add adds a chunk under all names that requisites may use.
func (g *graph) add(ch *chunk) {
	n := g.node(ch.tag(), ch)
	name := value.Str(ch.name)
	for _, t := range []target{{ch.module, name}, {ch.module, ch.id}, {"id", ch.id}, {"id", name}} {
		list, known := g.lookup[t]
		if !known {
			g.keys = append(g.keys, t)
		}
		g.lookup[t] = appendOnce(list, n)
	}
	for _, sls := range append([]any{ch.sls}, ch.from...) {
		if s, ok := sls.(string); ok && s != "" {
			list, known := g.bySLS[s]
			if !known {
				g.sls = append(g.sls, s)
			}
			g.bySLS[s] = appendOnce(list, n)
		}
	}
}

// appendOnce appends n unless it is the last element of the list.
func appendOnce(list []int, n int) []int {
	if len(list) > 0 && list[len(list)-1] == n {
		return list
	}
	return append(list, n)
}

func (g *graph) edge(from, to int, k kind) {
	if g.nodes[from].out.add(to, k) {
		g.nodes[to].in.add(from, k)
		g.edges++
	}
}

// find lists the states that a requisite matches. A pattern for SLS files always counts as
// matching.
func (g *graph) find(ctx context.Context, c *compilation, key, val string) (nodes []int, found bool,
	err error) {
	pattern := strings.ContainsAny(val, "*?[]")
	switch {
	case key == "sls" && pattern:
		for _, sls := range g.sls {
			if fnmatch.Match(val, sls) {
				nodes = append(nodes, g.bySLS[sls]...)
			}
		}
		return nodes, true, c.spend(ctx, len(g.sls))
	case key == "sls":
		nodes = g.bySLS[val]
	case pattern:
		for _, t := range g.keys {
			if t.module == key && fnmatch.Match(val, t.name) {
				nodes = append(nodes, g.lookup[t]...)
			}
		}
		err = c.spend(ctx, len(g.keys))
	default:
		nodes = g.lookup[target{key, val}]
	}
	return nodes, len(nodes) > 0, err
}

// requisiteKinds are the keywords that make edges, in Salt's order.
var requisiteKinds = []kind{require, requireAny, watch, watchAny, prereq, onfail, onfailAny,
	onfailAll, onchanges, onchangesAny}

// requisites adds the edges of a chunk. The texts are errors of its requisites.
func (c *compilation) requisites(ctx context.Context, g *graph, ch *chunk) (string, error) {
	name, sls := value.Str(ch.name), show(ch.sls)
	for _, k := range requisiteKinds {
		v, _ := ch.get(k.String())
		refs, ok := v.([]any)
		if !ok || c.isDisabled(k.String()) {
			continue
		}
		for _, ref := range refs {
			key, val := any("id"), ref
			if m, isMap := ref.(value.Map); isMap {
				p, ok := first(m)
				if !ok {
					continue
				}
				key, val = p.Key, p.Value
			}
			module, _, _ := strings.Cut(value.Str(key), ".")
			if val == nil {
				continue
			}
			text, ok := val.(string)
			if !ok {
				return fmt.Sprintf("Requisite [%s: %s] in state [%s] in SLS [%s] must have a string as the value", k, module, name, sls), nil
			}
			nodes, found, err := g.find(ctx, c, module, text)
			if err != nil {
				return "", err
			}
			if !found {
				return fmt.Sprintf("Referenced state does not exist for requisite [%s: (%s: %s)] in state [%s] in SLS [%s]", k, module, text, name, sls), nil
			}
			if err := c.spend(ctx, len(nodes)); err != nil {
				return "", err
			}
			if g.depend(ch, k, nodes); g.edges > maxEdges {
				return "", fmt.Errorf("more than %d requisites: %w; require fewer states", maxEdges,
					errTooMuch)
			}
		}
	}
	return "", nil
}

// depend makes a chunk depend on others.
func (g *graph) depend(ch *chunk, k kind, on []int) {
	self := g.byTag[ch.tag()]
	tried := ch.try
	for _, n := range on {
		if k == prereq {
			g.prereq(self, n)
			continue
		}
		if tried {
			g.edge(n, g.node(g.nodes[self].tag+tryTag, ch), k)
		}
		g.edge(n, self, k)
	}
}

// prereq makes a state run before another one, after a trial run of that other one.
func (g *graph) prereq(self, other int) {
	g.nodes[self].chunk.prerequires = true
	ch := g.nodes[other].chunk
	ch.try = true
	tag := g.nodes[other].tag + tryTag
	try, known := g.byTag[tag]
	if !known {
		try = g.node(tag, ch)
		for _, l := range g.nodes[other].in.list {
			for _, k := range l.kinds {
				if k != prereq {
					g.edge(l.to, try, k)
				}
			}
		}
	}
	g.edge(try, self, prereq)
	g.edge(self, other, require)
	if own, ok := g.byTag[g.nodes[self].tag+tryTag]; ok {
		g.edge(try, own, prereq)
	}
}

// dependencies calls fn with each state that a chunk depends on, or that its trial run depends on
// if that is next.
func (g *graph) dependencies(ch *chunk, fn func(k kind, on *chunk)) {
	tag := ch.tag()
	if ch.try {
		tag += tryTag
	}
	n, ok := g.byTag[tag]
	if !ok {
		return
	}
	for _, l := range g.nodes[n].in.list {
		for _, k := range l.kinds {
			fn(k, g.nodes[l.to].chunk)
		}
	}
}

// order sorts chunks into the order in which they run; one with a trial run comes twice. It adds
// faults for wrong requisites.
func (c *compilation) order(ctx context.Context, g *graph, chunks []*chunk) ([]*chunk, error) {
	limit := 1.0
	for _, ch := range chunks {
		if !c.plain {
			c.reconcileWatch(ch)
		}
		text, err := c.requisites(ctx, g, ch)
		if err != nil {
			return nil, err
		}
		if text != "" {
			c.fault("%s", text)
			continue
		}
		if v, ok := ch.get("order"); ok {
			if n, ok := integer(v); ok && n > limit-1 && n > 0 {
				limit = n + 100
			}
		}
	}
	sorted := g.sorted(limit)
	if len(sorted) < len(g.nodes) {
		c.fault("Recursive requisites were found: %s", g.cycle())
		return nil, nil
	}
	return sorted, nil
}

// reconcileWatch turns watch into require where the module can't watch.
func (c *compilation) reconcileWatch(ch *chunk) {
	if _, ok := c.functions.Lookup(ch.module + ".mod_watch"); ok {
		return
	}
	for _, k := range [][2]kind{{watch, require}, {watchAny, requireAny}} {
		v, ok := ch.get(k[0].String())
		if !ok {
			continue
		}
		more, _ := v.([]any)
		old, _ := ch.get(k[1].String())
		have, _ := old.([]any)
		ch.low = ch.low.Without(k[0].String()).Set(k[1].String(),
			append(have[:len(have):len(have)], more...))
	}
}

// integer returns the value of a Python int, which a bool is as well.
func integer(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// orderOf returns a chunk's order as a number: last and first relative to the limit.
func (ch *chunk) orderOf(limit float64) float64 {
	if ch.ordered {
		return ch.order
	}
	v, _ := ch.get("order")
	n, ok := integer(v)
	if f, isFloat := v.(float64); isFloat {
		n, ok = f, true
	}
	if !ok {
		switch v {
		case "last":
			n = limit + 1_000_000
		case "first":
			n = 0
		default:
			n = limit
		}
	}
	return n
}

// settle fixes a chunk's order, including its place among names.
func (ch *chunk) settle(limit float64) float64 {
	if !ch.ordered {
		ch.order = ch.orderOf(limit)
		ch.order += float64(ch.nameOrder) / 10000
		if ch.order < 0 {
			ch.order += limit + 1_000_000
		}
		ch.ordered = true
	}
	return ch.order
}

// rank is the sort key of nodes that can run.
type rank struct {
	order, own float64
	label, tag string
	node       int
}

func (g *graph) rank(n int, limit float64) rank {
	nd := g.nodes[n]
	ch := nd.chunk
	own := ch.settle(limit)
	order := own
	if nd.lowest == nil {
		var least *float64
		weight := kind(-1)
		for _, l := range nd.out.list {
			for _, k := range l.kinds {
				if weight <= k {
					weight = k
					if o := g.nodes[l.to].chunk.childOrder(limit); least == nil || o < *least {
						least = &o
					}
				}
			}
		}
		if nd.lowest = least; least != nil && order > *least {
			order = *least
		}
	}
	return rank{order, own, ch.module + value.Str(ch.name) + ch.fun, nd.tag, n}
}

// childOrder is the order of a state as seen by those that it depends on: its place among names
// counts only once it is settled.
func (ch *chunk) childOrder(limit float64) float64 {
	if _, has := ch.get("order"); !has && !ch.ordered {
		return math.Inf(1)
	}
	return ch.orderOf(limit)
}

// ranks is a heap.
type ranks []rank

func (r ranks) Len() int { return len(r) }
func (r ranks) Less(i, j int) bool {
	a, b := r[i], r[j]
	switch {
	case a.order != b.order:
		return a.order < b.order
	case a.own != b.own:
		return a.own < b.own
	case a.label != b.label:
		return a.label < b.label
	}
	return a.tag < b.tag
}
func (r ranks) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *ranks) Push(x any)   { *r = append(*r, x.(rank)) }
func (r *ranks) Pop() any {
	old := *r
	last := old[len(old)-1]
	*r = old[:len(old)-1]
	return last
}

// sorted lists the chunks in the order of requisites, and by rank among those that could run next.
// The list is incomplete if there is a cycle.
func (g *graph) sorted(limit float64) []*chunk {
	waits := make([]int, len(g.nodes))
	for i, n := range g.nodes {
		for _, l := range n.in.list {
			waits[i] += len(l.kinds)
		}
	}
	var ready ranks
	for i := range g.nodes {
		if waits[i] == 0 {
			heap.Push(&ready, g.rank(i, limit))
		}
	}
	var out []*chunk
	for ready.Len() > 0 {
		next, _ := heap.Pop(&ready).(rank)
		out = append(out, g.nodes[next.node].chunk)
		for _, l := range g.nodes[next.node].out.list {
			if waits[l.to] -= len(l.kinds); waits[l.to] == 0 {
				heap.Push(&ready, g.rank(l.to, limit))
			}
		}
	}
	return out
}

// cycle names the states of one cycle and their links.
func (g *graph) cycle() string {
	type step struct {
		from, to int
		k        kind
	}
	const fresh, open, closed = 0, 1, 2
	colour := make([]int8, len(g.nodes))
	parent := make([]step, len(g.nodes))
	type frame struct{ node, next int }
	for root := range g.nodes {
		if colour[root] != fresh {
			continue
		}
		stack := []frame{{node: root}}
		colour[root] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			out := g.nodes[top.node].out.list
			if top.next == len(out) {
				colour[top.node] = closed
				stack = stack[:len(stack)-1]
				continue
			}
			l := out[top.next]
			top.next++
			s := step{top.node, l.to, l.kinds[0]}
			switch colour[l.to] {
			case open:
				steps := []step{s}
				for at := top.node; at != l.to; at = parent[at].from {
					steps = append(steps, parent[at])
				}
				var texts []string
				for i := len(steps) - 1; i >= 0; i-- {
					s := steps[i]
					before, after := g.nodes[s.from].chunk, g.nodes[s.to].chunk
					k := s.k
					if _, has := after.get(k.String()); !has && k == require {
						k = prereq
					}
					texts = append(texts,
						fmt.Sprintf("(%s, '%s', %s)", after.place(), k, before.place()))
				}
				return strings.Join(texts, ", ")
			case fresh:
				colour[l.to], parent[l.to] = open, s
				stack = append(stack, frame{node: l.to})
			}
		}
	}
	return ""
}

// place names a chunk in messages.
func (ch *chunk) place() string {
	m := value.Map{{Key: "SLS", Value: ch.sls}, {Key: "ID", Value: ch.id}}
	if ch.name != any(ch.id) {
		m = append(m, value.Pair{Key: "NAME", Value: ch.name})
	}
	return value.Repr(m)
}
