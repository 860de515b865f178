package simminion

import (
	"context"
	"slices"
	"strings"

	"clustermaster/salt/target"
	"clustermaster/value"
)

// isTarget reports whether a publication is for this minion, judged by its own id, grains and
// pillar.
func (m *Minion) isTarget(load value.Map) bool {
	tgt, _ := load.Get("tgt")
	switch kind := load.String("tgt_type"); kind {
	case "glob", "":
		pattern, ok := tgt.(string)
		return ok && target.Glob(pattern, m.cfg.ID)
	case "pcre":
		pattern, ok := tgt.(string)
		return ok && target.MatchStart(pattern, m.cfg.ID)
	case "list":
		switch ids := tgt.(type) {
		case []any:
			return slices.Contains(ids, any(m.cfg.ID))
		case string:
			return slices.Contains(strings.Split(ids, ","), m.cfg.ID)
		}
		return false
	default:
		found, err := target.Match(context.Background(), kind, tgt, load.String("delimiter"),
			own{m}, true)
		return err == nil && len(found.Minions) > 0
	}
}

// own is a Source with one minion and no nodegroups, which masters write out.
type own struct{ *Minion }

var _ target.Source = own{}

func (o own) AcceptedIDs() []string        { return []string{o.cfg.ID} }
func (o own) DataCache() bool              { return true }
func (o own) Nodegroup(string) (any, bool) { return nil, false }

func (o own) Ask(_ context.Context, q target.Question, fn func(string, target.Hits)) (string,
	error) {
	j := q.Judge()
	fn(o.cfg.ID, j.Minion(false, o.grains()))
	if !slices.ContainsFunc(q.Terms, func(t target.Term) bool {
		return strings.HasPrefix(t.Kind,
			"pillar")
	}) {
		return "", nil
	}
	pillar, err := value.UnpackMap(o.Pillar())
	if err != nil {
		return "the minion has no pillar yet", nil // then no pillar target matches
	}
	fn(o.cfg.ID, j.Minion(true, pillar))
	return "", nil
}
