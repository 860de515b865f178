package statesync

import (
	"context"
	"sync"
	"time"
)

// statusLimit bounds a master's search for drift, which reads changed files.
const statusLimit = 2 * time.Minute

// TreeStatus is one tree on one master.
type TreeStatus struct {
	Report      // Seq, Drift, Missing, Skipped and Error
	Behind bool // a newer head is not installed yet
}

// Status reports for every member which heads it has and, if asked, what changed there since. A
// master that can't be asked is Away or has an Error.
func (s *Store) Status(ctx context.Context, trees []Tree, drift bool) []TreeStatus {
	nodes := s.peers.Members()
	answers := make([][]TreeStatus, len(nodes))
	var wg sync.WaitGroup
	for i, node := range nodes {
		wg.Go(func() { answers[i] = s.statusOf(ctx, node, drift) })
	}
	wg.Wait()
	var out []TreeStatus
	for _, tree := range trees {
		for _, a := range answers {
			for _, st := range a {
				if st.Tree == tree {
					out = append(out, st)
				}
			}
		}
	}
	return out
}

func (s *Store) statusOf(ctx context.Context, node string, drift bool) []TreeStatus {
	failed := func(text string) []TreeStatus {
		return []TreeStatus{{Report: Report{Tree: FileRoots, Node: node, Error: text}},
			{Report: Report{Tree: PillarRoots, Node: node, Error: text}}}
	}
	var all []TreeStatus
	var err error
	switch {
	case node == s.peers.Self():
		all, err = s.ownStatus(ctx, drift)
	case !s.peers.Alive(node):
		return []TreeStatus{{Report: Report{Tree: FileRoots, Node: node, Away: true}},
			{Report: Report{Tree: PillarRoots, Node: node, Away: true}}}
	default:
		var r *remote
		if r, err = s.remote(node); err == nil {
			all, err = r.status(ctx, drift)
		}
	}
	if err != nil {
		return failed(err.Error())
	}
	return all
}

// ownStatus returns this master's part of Status.
func (s *Store) ownStatus(ctx context.Context, drift bool) ([]TreeStatus, error) {
	var out []TreeStatus
	for _, tree := range []Tree{FileRoots, PillarRoots} {
		t := s.trees[tree]
		rec := t.record()
		st := TreeStatus{Report: Report{Tree: tree, Node: s.peers.Self(), Seq: rec.head.Seq},
			Behind: !s.current(t)}
		if drift && rec.manifest != nil {
			report, err := s.rehearse(ctx, t, rec.manifest, false)
			if err != nil {
				return nil, err
			}
			report.Changes = nil
			st.Report = *report
			s.met.drift.WithLabelValues(tree.String()).Set(float64(report.Drifted))
		}
		st.Error = t.trouble()
		out = append(out, st)
	}
	return out, nil
}

// Heads returns the numbers of the heads that this master has installed; 0: none.
func (s *Store) Heads() (file, pillar uint64) {
	return s.trees[FileRoots].record().head.Seq, s.trees[PillarRoots].record().head.Seq
}

// Trouble says why a tree is behind; "" if none is.
func (s *Store) Trouble() string {
	for _, tree := range []Tree{FileRoots, PillarRoots} {
		if text := s.trees[tree].trouble(); text != "" {
			return tree.String() + ": " + text
		}
	}
	return ""
}
