package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/target"
	"clustermaster/store/allotment"
	"clustermaster/store/memory"
	"clustermaster/value"
)

// Bounds of one _mine_get.
const (
	maxMineFunctions = 100
	maxMineTime      = 10 * time.Second
	maxCheapMine     = 64 // values that may be read without a turn
)

// keepsMine reports whether mine data are stored at all.
func (m *Master) keepsMine() bool { return m.opts.MinionDataCache || m.opts.EnforceMineCache }

// mine stores a minion's mine data. Clear replaces all of it, which in Salt fails.
func (m *Master) mine(ctx context.Context, c *call) (any, error) {
	raw, ok := c.Load.Get("data")
	if !ok || c.ID == "" {
		return value.Map{}, nil
	}
	if !m.keepsMine() {
		return true, nil
	}
	data, err := raw.Map()
	if err != nil {
		return nil, fmt.Errorf("decode mine: %w", err)
	}
	replace, _ := c.Load.Get("clear")
	err = m.deps.Data.MergeMine(ctx, c.ID, data, isTrue(replace))
	if errors.Is(err, allotment.ErrQuota) {
		m.refused.note("quota_mine", c.ID, c.remote)
		return false, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: save mine of %q: %w", errUnacknowledged, c.ID, err)
	}
	return true, nil
}

func (m *Master) mineDelete(ctx context.Context, c *call) (any, error) {
	fun := c.Load.String("fun")
	if fun == "" || c.ID == "" {
		return value.Map{}, nil
	}
	if m.keepsMine() {
		if err := m.deps.Data.DeleteMine(ctx, c.ID, fun); err != nil {
			return nil, fmt.Errorf("%w: delete mine of %q: %w", errUnacknowledged, c.ID, err)
		}
	}
	return true, nil
}

func (m *Master) mineFlush(ctx context.Context, c *call) (any, error) {
	if c.ID == "" {
		return value.Map{}, nil
	}
	if m.keepsMine() {
		if err := m.deps.Data.FlushMine(ctx, c.ID); err != nil {
			return nil, fmt.Errorf("%w: flush mine of %q: %w", errUnacknowledged, c.ID, err)
		}
	}
	return true, nil
}

// mineGet answers _mine_get.
func (m *Master) mineGet(ctx context.Context, c *call) (any, error) {
	rawTgt, hasTgt := c.Load.Get("tgt")
	rawFun, hasFun := c.Load.Get("fun")
	if !hasTgt || !hasFun || c.ID == "" {
		return value.Map{}, nil
	}
	tgt, err := rawTgt.Unpack()
	if err != nil {
		return nil, fmt.Errorf("decode mine target: %w", err)
	}
	fun, err := rawFun.Unpack()
	if err != nil {
		return nil, fmt.Errorf("decode mine function: %w", err)
	}
	tgtType := c.Load.String("tgt_type")
	if tgtType == "" {
		tgtType = c.Load.String("expr_form")
	}
	t := &turn{of: m.resolving}
	defer t.end()
	ctx, cancel := context.WithTimeout(ctx, maxResolvingWait+maxMineTime)
	defer cancel()
	hold := func(n int64) error {
		if err := c.hold(n); err != nil {
			return fmt.Errorf("read the mine for %q: %w", c.ID, err)
		}
		return nil
	}
	v, err := m.mineGetIn(ctx, t, hold, c.ID, tgt, fun, tgtType)
	if errors.Is(err, errNoMemory) {
		m.refused.note("memory", c.ID, c.remote)
		return nil, err
	}
	if errors.Is(err, target.ErrTooCostly) {
		m.refused.note("target_cost", c.ID, c.remote)
		return value.Map{}, nil
	}
	if errors.Is(err, errBusyTargets) {
		m.refused.note("busy_targets", c.ID, c.remote)
	}
	if err != nil { // the minion would take any reply for the mine
		return nil, fmt.Errorf("%w: read the mine for %q: %w", errUnacknowledged, c.ID, err)
	}
	return v, nil
}

// MineGet reads from the mines of a target's minions what the asking minion may see. Fun is a list
// or a text, which may name several functions. For one function it returns minion to value, for
// several function to minion to value. An operator asks with the id "" and sees all.
func (m *Master) MineGet(ctx context.Context, asking string, tgt, fun any,
	tgtType string) (value.Map, error) {
	var held memory.Answer
	hold := func(n int64) error {
		if err := held.Hold(n); err != nil {
			return fmt.Errorf("the mine values are %w", err)
		}
		return nil
	}
	found, err := m.mineGetIn(ctx, nil, hold, asking, tgt, fun, tgtType)
	if err == nil {
		err = decodeMine(found, hold)
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// decodeMine replaces the packed values of a result of mineGetIn, whose bytes hold has counted.
func decodeMine(found value.Map, hold func(int64) error) (err error) {
	for i, p := range found {
		switch v := p.Value.(type) {
		case value.Map:
			err = decodeMine(v, hold)
		case value.Raw:
			found[i].Value = nil // of an envelope without data
			if err := hold(memory.Size(v) - int64(len(v))); err != nil {
				return err
			}
			if len(v) > 0 {
				found[i].Value, err = v.Unpack()
			}
		}
		if err != nil {
			return fmt.Errorf("decode mine: %w", err)
		}
	}
	return nil
}

// errNoMemory: the requests that run hold all memory that requests may hold.
var errNoMemory = errors.New("requests in flight hold too much memory")

// hold counts n bytes that the answer to a request takes, and fails if there is no memory for them.
func (c *call) hold(n int64) error {
	if c.sender != nil && !c.sender.Hold(n) {
		return fmt.Errorf("%w: %w", errUnacknowledged, errNoMemory)
	}
	return nil
}

// mineGetIn is MineGet, but the values are still packed (value.Raw), and it takes a turn before
// costly work, which is anything but reading a few values of a few named minions. Hold counts the
// bytes that it reads; its error ends the reading.
func (m *Master) mineGetIn(ctx context.Context, t *turn, hold func(int64) error, asking string,
	tgt, fun any, tgtType string) (value.Map, error) {
	funs, nested := mineFunctions(fun)
	if asking != "" && len(funs) > maxMineFunctions {
		return nil, fmt.Errorf("%d functions of the mine at once, at most %d: %w", len(funs),
			maxMineFunctions, target.ErrTooCostly)
	}
	if asking != "" {
		funs = m.mineAllowed(asking, funs)
	}
	if len(funs) == 0 {
		return value.Map{}, nil
	}
	if exact, is := exactPillar(tgtType); is && asking != "" {
		tgtType = exact
	}
	match := target.MatchMinions
	if asking == "" {
		match = func(ctx context.Context, tgtType string, tgt any, src target.Source,
			greedy bool) (target.Result, error) {
			return target.Match(ctx, tgtType, tgt, "", src, greedy)
		}
	}
	if named := target.Named(tgtType, tgt); named < 0 || named*len(funs) > maxCheapMine {
		if err := t.take(ctx); err != nil {
			return nil, err
		}
	}
	found, err := match(ctx, tgtType, tgt, m.deps.Targets, false)
	if err != nil {
		return nil, err
	}
	switch {
	case found.Incomplete != "" && asking != "":
		return nil, errUnreadData
	case found.Incomplete != "":
		m.log.Warn("a mine's target was resolved without all minions' data", "tgt",
			value.Str(textual(tgt)), "tgt_type", tgtType, "covered", found.Incomplete)
	}
	sees := m.mineReader(ctx, t, hold, asking)
	byFun := value.Map{}
	for _, fun := range funs {
		packed, err := m.deps.Data.MineValues(ctx, fun, found.Minions, hold)
		if err != nil {
			return nil, err
		}
		values := value.Map{}
		for _, id := range found.Minions {
			raw, ok := packed[id]
			if !ok {
				continue
			}
			if _, err := value.Weigh(raw); err != nil {
				m.log.Warn("mine value does not decode; it is left out", "minion", id, "fun", fun,
					"err", err)
				continue
			}
			raw, ok, err := sees(raw)
			if err != nil {
				return nil, err
			}
			if ok {
				values = append(values, value.Pair{Key: id, Value: raw})
			}
		}
		if !nested {
			return values, nil
		}
		if len(values) > 0 {
			byFun = append(byFun, value.Pair{Key: fun, Value: values})
		}
	}
	return byFun, nil
}

// mineFunctions lists the requested functions, each once, and whether the reply is nested by them.
func mineFunctions(fun any) (funs []string, nested bool) {
	text, one := fun.(string)
	if one {
		fun = strings.Split(text, ",")
	}
	seen := make(map[string]bool)
	for _, name := range names(fun) {
		if !seen[name] {
			seen[name] = true
			funs = append(funs, name)
		}
	}
	return funs, !one || len(funs) > 1
}

// mineAllowed applies the option mine_get.
func (m *Master) mineAllowed(id string, funs []string) []string {
	if m.opts.MineGet == nil {
		return funs
	}
	var patterns []string
	for _, p := range m.opts.MineGet {
		who, _ := p.Key.(string)
		list, ok := p.Value.([]any)
		if !ok || !target.MatchStart(who, id) {
			continue
		}
		for _, f := range list {
			if pattern, ok := f.(string); ok {
				patterns = append(patterns, pattern)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(funs), func(fun string) bool {
		return !slices.ContainsFunc(patterns,
			func(p string) bool { return target.MatchStart(p, fun) })
	})
}

// mineReader returns a function that takes stored values out of their envelopes if their owner lets
// the asking minion see them; an operator ("") sees all. It evaluates each allow_tgt only once, as
// most minions use the same one, and fails if it cannot say what one means now.
func (m *Master) mineReader(ctx context.Context, t *turn, hold func(int64) error,
	asking string) func(value.Raw) (value.Raw, bool, error) {
	known := make(map[string]bool) // by type and packed target
	return func(v value.Raw) (value.Raw, bool, error) {
		if len(v.Lookup("__saltmine_acl__")) == 0 {
			return v, true, nil
		}
		data, tgt := v.Lookup("__data__"), v.Lookup("allow_tgt")
		if len(tgt) == 0 || asking == "" {
			return data, true, nil
		}
		tgtType, _ := v.Lookup("allow_tgt_type").Text()
		key := tgtType + "\x00" + string(tgt)
		may, is := known[key]
		if !is {
			if err := t.take(ctx); err != nil {
				return nil, false, err
			}
			weight, _ := value.Weigh(tgt)
			if err := hold(weight); err != nil {
				return nil, false, err
			}
			decoded, err := tgt.Unpack()
			if err == nil { // who made one that does not decode lets nobody in
				may, err = m.means(ctx, tgtType, decoded, asking)
			}
			if err != nil {
				return nil, false, err
			}
			known[key] = may
		}
		return data, may, nil
	}
}

// errUnreadData: without all minions' data nobody can say what a target or an allow_tgt means.
var errUnreadData = errors.New("not all minions' data could be read")

// means reports whether an allow_tgt means a minion. One that takes too much work, or is too large,
// means nobody.
func (m *Master) means(ctx context.Context, tgtType string, tgt any, id string) (bool, error) {
	may, incomplete, err := target.Means(ctx, tgtType, tgt, m.deps.Targets, id)
	switch {
	case errors.Is(err, target.ErrTooCostly), errors.Is(err, target.ErrQuestion):
		return false, nil
	case err == nil && !may && incomplete != "":
		return false, errUnreadData
	}
	return may, err
}

// exactPillar returns the type to use instead of one with patterns on pillar, with which a minion
// that chooses the target could guess another's pillar; ok is false for types without them. A
// mine's allow_tgt may have them: who asks does not choose it.
func exactPillar(tgtType string) (exact string, ok bool) {
	switch tgtType {
	case "pillar", "pillar_pcre":
		return "pillar_exact", true
	case "compound":
		return "compound_pillar_exact", true
	}
	return "", false
}
