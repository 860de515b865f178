package statesync

import (
	"clustermaster/statesync/syncpb"
)

// Paths travel as bytes, because file names need not be text.

func (r *Report) toWire() *syncpb.Report {
	p := &syncpb.Report{
		Tree: uint32(r.Tree), Node: r.Node, Seq: r.Seq, Added: int64(r.Added),
		Changed: int64(r.Changed), Deleted: int64(r.Deleted),
		Bytes: r.Bytes, Kept: int64(r.Kept), KeptIn: bytesOf(r.KeptIn), Drifted: int64(r.Drifted),
		Changes: bytesOf(r.Changes), Skipped: bytesOf(r.Skipped), Error: r.Error,
	}
	for _, d := range r.Drift {
		p.Drift = append(p.Drift, &syncpb.Drift{Env: d.Scope.Env, Root: uint32(d.Scope.Root),
			Path: []byte(d.Path), What: d.What})
	}
	for _, m := range r.Missing {
		p.Missing = append(p.Missing, &syncpb.Scope{Env: m.Env, Root: uint32(m.Root)})
	}
	return p
}

// reportFrom reads a report of another master. Node is the sender, whatever the report says.
func reportFrom(p *syncpb.Report, node string) Report {
	r := Report{
		Tree: Tree(min(p.GetTree(), 255)), Node: node, Seq: p.GetSeq(), Added: int(p.GetAdded()),
		Changed: int(p.GetChanged()), Deleted: int(p.GetDeleted()),
		Bytes: p.GetBytes(), Kept: int(p.GetKept()), KeptIn: textsOf(p.GetKeptIn()),
		Drifted: int(p.GetDrifted()),
		Changes: textsOf(p.GetChanges()), Skipped: textsOf(p.GetSkipped()), Error: p.GetError(),
	}
	for _, d := range p.GetDrift()[:min(len(p.GetDrift()), maxListed)] {
		r.Drift = append(r.Drift, Drift{Scope: scopeFrom(d.GetEnv(), d.GetRoot()),
			Path: string(d.GetPath()), What: d.GetWhat()})
	}
	for _, m := range p.GetMissing()[:min(len(p.GetMissing()), maxListed)] {
		r.Missing = append(r.Missing, scopeFrom(m.GetEnv(), m.GetRoot()))
	}
	return r
}

func scopeFrom(env string, root uint32) Scope {
	return Scope{Env: env, Root: int(min(root, maxScopes))}
}

func bytesOf(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, t := range texts {
		out[i] = []byte(t)
	}
	return out
}

func textsOf(b [][]byte) []string {
	b = b[:min(len(b), maxListed)]
	out := make([]string, len(b))
	for i, t := range b {
		out[i] = string(t)
	}
	return out
}
