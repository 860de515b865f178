package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
	"clustermaster/value/fnmatch"
)

// The names that Salt gives the states of minion keys in lists.
const (
	StateAccepted = "minions"
	StatePending  = "minions_pre"
	StateRejected = "minions_rejected"
	StateDenied   = "minions_denied"
)

// KeyStates are all states in the order of key.list_all.
var KeyStates = []string{StatePending, StateRejected, StateAccepted, StateDenied}

// KeyAction is a change of keys.
type KeyAction string

// The changes that exist.
const (
	AcceptKeys KeyAction = "accept"
	RejectKeys KeyAction = "reject"
	DeleteKeys KeyAction = "delete"
)

// KeyChange is the outcome of a change.
type KeyChange struct {
	Changed  []string // ids
	Warnings []string // members that did not confirm, each a sentence
}

// Keys reads and changes minion keys on the whole cluster.
type Keys interface {
	// KeyLists maps state to ids, sorted. The note says why they may be out of date; else it is "".
	KeyLists(ctx context.Context) (lists map[string][]string, note string, err error)
	// KeyText returns the public key of an id in a state, as PEM.
	KeyText(ctx context.Context, id, state string) (pem string, ok bool, err error)
	// ChangeKeys changes the keys of ids that are in one of the states, and returns when every
	// ready master has done so.
	ChangeKeys(ctx context.Context, action KeyAction, ids, states []string) (KeyChange, error)
	// PutKey accepts pub as the key of an id. An id with an accepted, pending or rejected key keeps
	// that one unless replace is set; Changed is then empty.
	PutKey(ctx context.Context, id, pub string, replace bool) (KeyChange, error)
}

// KeyFamilyDeps is what the wheel family key uses.
type KeyFamilyDeps struct {
	Keys        Keys
	Fingerprint func(pem, hashType string) (string, error) // wire.Fingerprint
	// Generate makes a key pair of that many bits.
	Generate func(bits int) (private, public string, err error)
	HashType string // the option hash_type
	// the master's own keys that may be shown: file name to PEM of the public part, or to ""
	Local func() (map[string]string, error)
}

// KeyFamily is the wheel family key.
func KeyFamily(d KeyFamilyDeps) []Function {
	match := function.Need("match")
	made := newGenerator(d.Generate)
	return append(made.functions(d), []Function{
		{Name: "key.list_all", Run: d.listAll,
			Doc: `List all keys by state.

Example:

    wheel.cmd('key.list_all')`},
		{Name: "key.list", Params: []function.Param{match}, Run: d.list,
			Doc: `List the keys of one state: accepted, pre, rejected, denied or all.

Example:

    wheel.cmd('key.list', ['accepted'])`},
		{Name: "key.name_match", Params: []function.Param{match}, Run: d.nameMatch,
			Doc: "List the keys whose id matches a glob, by state."},
		{Name: "key.glob_match", Params: []function.Param{match}, Run: d.nameMatch,
			Doc: "List the keys whose id matches a glob, by state."},
		{
			Name: "key.accept", Params: []function.Param{match,
				function.Opt("include_rejected", false), function.Opt("include_denied", false)},
			Run: d.changer(AcceptKeys, acceptStates),
			Doc: `Accept pending keys whose id matches a glob.

Example:

    wheel.cmd('key.accept', ['minion1'])`,
		},
		{
			Name: "key.accept_dict", Params: []function.Param{match,
				function.Opt("include_rejected", false), function.Opt("include_denied", false)},
			Run: d.dictChanger(AcceptKeys, acceptStates),
			Doc: "Accept keys given as a map of state to ids.",
		},
		{
			Name: "key.reject", Params: []function.Param{match,
				function.Opt("include_accepted", false), function.Opt("include_denied", false)},
			Run: d.changer(RejectKeys, rejectStates),
			Doc: "Reject pending keys whose id matches a glob.",
		},
		{
			Name: "key.reject_dict", Params: []function.Param{match,
				function.Opt("include_accepted", false), function.Opt("include_denied", false)},
			Run: d.dictChanger(RejectKeys, rejectStates),
			Doc: "Reject keys given as a map of state to ids.",
		},
		{Name: "key.delete", Params: []function.Param{match},
			Run: d.changer(DeleteKeys, deleteStates),
			Doc: "Delete keys of any state whose id matches a glob."},
		{Name: "key.delete_dict", Params: []function.Param{match},
			Run: d.dictChanger(DeleteKeys, deleteStates),
			Doc: "Delete keys given as a map of state to ids."},
		{Name: "key.key_str", Params: []function.Param{match}, Run: d.keyStr,
			Doc: "Show the public keys whose id matches a glob, by state."},
		{Name: "key.print", Params: []function.Param{match}, Run: d.keyStr,
			Doc: "Show the public keys whose id matches a glob, by state."},
		{
			Name: "key.finger", Params: []function.Param{match, function.Opt("hash_type", nil)},
			Run: d.finger,
			Doc: "Show the fingerprints of keys whose id matches a glob, by state. The form is " +
				"that of the minion's key.finger.",
		},
		{Name: "key.master_key_str", Run: d.masterKey,
			Doc: "Show the key that minions see as the master's."},
		{Name: "key.finger_master", Params: []function.Param{function.Opt("hash_type", nil)},
			Run: d.fingerMaster,
			Doc: "Show the fingerprint of the key that minions see as the master's."},
	}...)
}

func acceptStates(c *Call) []string {
	states := []string{StatePending}
	if c.True("include_rejected") {
		states = append(states, StateRejected)
	}
	if c.True("include_denied") {
		states = append(states, StateDenied)
	}
	return states
}

func rejectStates(c *Call) []string {
	states := []string{StatePending}
	if c.True("include_accepted") {
		states = append(states, StateAccepted)
	}
	if c.True("include_denied") {
		states = append(states, StateDenied)
	}
	return states
}

func deleteStates(*Call) []string { return KeyStates }

// lists returns all keys, and warns the caller if they may be out of date.
func (d KeyFamilyDeps) lists(ctx context.Context, c *Call) (map[string][]string, error) {
	lists, note, err := d.Keys.KeyLists(ctx)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	if note != "" {
		c.Warn(note)
	}
	return lists, nil
}

func (d KeyFamilyDeps) listAll(ctx context.Context, c *Call) (any, error) {
	lists, err := d.lists(ctx, c)
	if err != nil {
		return nil, err
	}
	ret := value.Map{}
	for _, state := range KeyStates {
		ret = append(ret, value.Pair{Key: state, Value: value.Texts(lists[state])})
	}
	local, err := d.local()
	if err != nil {
		return nil, err
	}
	names := []string{}
	for name := range local {
		names = append(names, name)
	}
	sort.Strings(names)
	return append(ret, value.Pair{Key: "local", Value: value.Texts(names)}), nil
}

func (d KeyFamilyDeps) list(ctx context.Context, c *Call) (any, error) {
	states, ok := StatesOf(c.Text("match"))
	if !ok {
		return value.Map{}, nil
	}
	lists, err := d.lists(ctx, c)
	if err != nil {
		return nil, err
	}
	ret := value.Map{}
	for _, state := range states {
		ret = append(ret, value.Pair{Key: state, Value: value.Texts(lists[state])})
	}
	return ret, nil
}

// StatesOf reads the words that Salt accepts for a state: any that begins with pre or un (pending),
// acc, rej, den, all.
func StatesOf(word string) ([]string, bool) {
	has := func(prefix string) bool {
		return len(word) >= len(prefix) &&
			word[:len(prefix)] == prefix
	}
	switch {
	case has("acc"):
		return []string{StateAccepted}, true
	case has("pre"), has("un"):
		return []string{StatePending}, true
	case has("rej"):
		return []string{StateRejected}, true
	case has("den"):
		return []string{StateDenied}, true
	case has("all"):
		return KeyStates, true
	}
	return nil, false
}

func (d KeyFamilyDeps) nameMatch(ctx context.Context, c *Call) (any, error) {
	found, err := d.matching(ctx, c, c.Arg("match"), KeyStates)
	if err != nil {
		return nil, err
	}
	ret := value.Map{}
	for _, state := range KeyStates {
		if len(found[state]) > 0 {
			ret = append(ret, value.Pair{Key: state, Value: value.Texts(found[state])})
		}
	}
	return ret, nil
}

// changer changes all keys whose id matches. As Salt does, it then returns the lists of the
// matching ids.
func (d KeyFamilyDeps) changer(action KeyAction, states func(*Call) []string) func(context.Context,
	*Call) (any, error) {
	return func(ctx context.Context, c *Call) (any, error) {
		found, err := d.matching(ctx, c, c.Arg("match"), states(c))
		if err != nil {
			return nil, err
		}
		ids := []string{}
		for _, state := range KeyStates {
			ids = append(ids, found[state]...)
		}
		if err := d.change(ctx, c, action, ids, states(c)); err != nil {
			return nil, err
		}
		return d.nameMatch(ctx, c)
	}
}

// dictChanger changes the keys of a map of state to ids. As Salt does, it then returns the states
// that those ids have now.
func (d KeyFamilyDeps) dictChanger(action KeyAction,
	states func(*Call) []string) func(context.Context, *Call) (any, error) {
	return func(ctx context.Context, c *Call) (any, error) {
		m, ok := value.Plain(c.Arg("match")).(value.Map)
		if !ok {
			return nil, &function.ArgumentError{Text: "match must be a map of state to ids, not " +
				value.Repr(c.Arg("match"))}
		}
		allowed := states(c)
		for _, p := range m {
			state, _ := p.Key.(string)
			if !contains(allowed, state) {
				continue
			}
			if err := d.change(ctx, c, action, textList(p.Value), []string{state}); err != nil {
				return nil, err
			}
		}
		lists, err := d.lists(ctx, c)
		if err != nil {
			return nil, err
		}
		return statesOf(lists, m), nil
	}
}

// statesOf returns, by state, those ids of a map of state to ids whose keys have that state now. An
// id may be a glob; it stays one.
func statesOf(lists map[string][]string, given value.Map) value.Map {
	ret := value.Map{}
	for _, p := range given {
		ids := textList(p.Value)
		slices.SortStableFunc(ids, func(a, b string) int {
			return strings.Compare(strings.ToLower(a), strings.ToLower(b))
		})
		for _, id := range ids {
			for _, state := range []string{StateAccepted, StatePending, StateRejected,
				StateDenied} {
				if len(MatchKeys(lists, []any{id}, []string{state})) == 0 {
					continue
				}
				have, _ := ret.Get(state)
				list, _ := have.([]any)
				ret = ret.Set(state, append(list, id))
			}
		}
	}
	return ret
}

func (d KeyFamilyDeps) change(ctx context.Context, c *Call, action KeyAction, ids,
	states []string) error {
	if len(ids) == 0 {
		return nil
	}
	change, err := d.Keys.ChangeKeys(ctx, action, ids, states)
	if err != nil {
		return fmt.Errorf("%s keys: %w", action, err)
	}
	for _, w := range change.Warnings {
		c.Warn(w)
	}
	return nil
}

func (d KeyFamilyDeps) matching(ctx context.Context, c *Call, match any,
	states []string) (map[string][]string, error) {
	lists, err := d.lists(ctx, c)
	if err != nil {
		return nil, err
	}
	return MatchKeys(lists, match, states), nil
}

// MatchKeys returns the parts of the lists, for the given states, whose ids match a glob, any of
// several globs with commas, or any of a list.
func MatchKeys(lists map[string][]string, match any, states []string) map[string][]string {
	found := make(map[string][]string)
	globs := textList(match)
	for _, state := range states {
		for _, id := range lists[state] {
			for _, g := range globs {
				if fnmatch.Match(g, id) {
					found[state] = append(found[state], id)
					break
				}
			}
		}
	}
	return found
}

func (d KeyFamilyDeps) keyStr(ctx context.Context, c *Call) (any, error) {
	return d.each(ctx, c, func(pem string) (string, error) { return pem, nil })
}

// finger includes the master's own keys, as Salt does; keyStr does not.
func (d KeyFamilyDeps) finger(ctx context.Context, c *Call) (any, error) {
	ret, err := d.each(ctx, c, func(pem string) (string, error) {
		return d.Fingerprint(pem, d.hash(c))
	})
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	local, err := d.local()
	if err != nil {
		return nil, err
	}
	for name, pem := range local {
		if pem != "" {
			names["local"] = append(names["local"], name)
		}
	}
	own := value.Map{}
	for _, name := range MatchKeys(names, c.Arg("match"), []string{"local"})["local"] {
		print, err := d.Fingerprint(local[name], d.hash(c))
		if err != nil {
			return nil, fmt.Errorf("read own key %s: %w", name, err)
		}
		own = append(own, value.Pair{Key: name, Value: print})
	}
	if len(own) > 0 {
		sorted, _ := value.Sorted(own)
		ret = append(ret, value.Pair{Key: "local", Value: sorted})
	}
	return ret, nil
}

func (d KeyFamilyDeps) masterKey(context.Context, *Call) (any, error) {
	local, err := d.local()
	if err != nil {
		return nil, err
	}
	shown := value.Map{}
	for name, pem := range local {
		if pem != "" {
			shown = append(shown, value.Pair{Key: name, Value: pem})
		}
	}
	if len(shown) == 0 {
		return nil, errors.New("the master has no key yet; wait until it serves")
	}
	sorted, _ := value.Sorted(shown)
	return value.Map{{Key: "local", Value: sorted}}, nil
}

// each maps state to id to the result of show for that key.
func (d KeyFamilyDeps) each(ctx context.Context, c *Call,
	show func(pem string) (string, error)) (value.Map, error) {
	found, err := d.matching(ctx, c, c.Arg("match"), KeyStates)
	if err != nil {
		return nil, err
	}
	ret := value.Map{}
	for _, state := range KeyStates {
		shown := value.Map{}
		for _, id := range found[state] {
			pem, ok, err := d.Keys.KeyText(ctx, id, state)
			if err != nil {
				return nil, fmt.Errorf("read key %s: %w", id, err)
			}
			if !ok {
				continue // changed since the lists were read
			}
			text, err := show(pem)
			if err != nil {
				return nil, fmt.Errorf("read key %s: %w", id, err)
			}
			shown = append(shown, value.Pair{Key: id, Value: text})
		}
		if len(shown) > 0 {
			ret = append(ret, value.Pair{Key: state, Value: shown})
		}
	}
	return ret, nil
}

func (d KeyFamilyDeps) fingerMaster(_ context.Context, c *Call) (any, error) {
	local, err := d.local()
	if err != nil {
		return nil, err
	}
	shown := value.Map{}
	for name, pem := range local {
		if pem == "" {
			continue
		}
		print, err := d.Fingerprint(pem, d.hash(c))
		if err != nil {
			return nil, fmt.Errorf("read own key %s: %w", name, err)
		}
		shown = append(shown, value.Pair{Key: name, Value: print})
	}
	if len(shown) == 0 {
		return nil, errors.New("the master has no key yet; wait until it serves")
	}
	sorted, _ := value.Sorted(shown)
	return value.Map{{Key: "local", Value: sorted}}, nil
}

func (d KeyFamilyDeps) hash(c *Call) string {
	if h := c.Text("hash_type"); h != "" {
		return h
	}
	return d.HashType
}

func (d KeyFamilyDeps) local() (map[string]string, error) {
	if d.Local == nil {
		return nil, nil
	}
	local, err := d.Local()
	if err != nil {
		return nil, fmt.Errorf("read the master's own keys: %w", err)
	}
	return local, nil
}
