package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/serve/operator"
	"clustermaster/test/e2e"
	"clustermaster/test/history"
	"clustermaster/value"
)

const (
	dialLimit = 2 * time.Second  // for a master to answer on its socket at all
	callLimit = 12 * time.Second // for one call; longer than a master keeps trying
)

// operators are clients that call through the operators' sockets of different masters and record
// the calls.
type operators struct {
	masters []*e2e.Master
	keys    *history.History
	votes   *history.History
	drains  *history.History
	ids     []string // of minions
	voter   *e2e.Master
}

// newOperators has not called yet. It chooses the master whose vote they change.
func newOperators(rng *rand.Rand, masters []*e2e.Master, ids ...string) *operators {
	return &operators{masters: masters, keys: history.New(), votes: history.New(),
		drains: history.New(), ids: ids, voter: masters[rng.IntN(len(masters))]}
}

// start has n clients call until ctx ends; wait waits for the last.
func (o *operators) start(ctx context.Context, t testing.TB, n int, rng *rand.Rand) (wait func()) {
	var clients sync.WaitGroup
	for i := range n {
		own := rand.New(rand.NewPCG(rng.Uint64(), 2))
		clients.Go(func() { o.run(ctx, t, i, own) })
	}
	return clients.Wait
}

// few names a kind of call of which too few have a known outcome to prove anything, "" if there are
// enough of all.
func (o *operators) few() string {
	for _, need := range []struct {
		history *history.History
		what    string
		least   map[string]int // of each verb
	}{
		{o.keys, "keys", map[string]int{"offer": 10, "accept": 2, "reject": 1, "delete": 2, "look": 20}},
		{o.votes, "votes", map[string]int{"on": 1, "off": 1, "look": 5}},
		{o.drains, "drains", map[string]int{"on": 1, "off": 1, "look": 5}},
	} {
		for verb, least := range need.least {
			if n := need.history.Told(verb); n < least {
				return fmt.Sprintf("%d of %s %s, at least %d", n, need.what, verb, least)
			}
		}
	}
	return ""
}

// judge reads everything once more from each master, and checks that the recorded calls are
// linearizable, and enough. It returns their number.
func (o *operators) judge(t testing.TB) (calls int) {
	t.Helper()
	if few := o.few(); few != "" {
		t.Errorf("too few calls have a known outcome: %s", few)
	}
	e2e.Eventually(t, healed, "all masters show keys and members", func() error {
		for _, m := range o.masters {
			if err := o.lookKeys(100, m); err != nil {
				return err
			}
			if err := o.lookMembers(100, m); err != nil {
				return err
			}
		}
		return nil
	})
	o.keys.Check(t, "keys", history.KeyModel())
	o.votes.Check(t, "votes", history.SwitchModel("on"))
	o.drains.Check(t, "drains", history.SwitchModel("off"))
	return o.keys.Calls() + o.votes.Calls() + o.drains.Calls()
}

// at connects to a master. If it fails, nothing has been asked.
func at(ctx context.Context, m *e2e.Master) (*operator.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	return operator.Dial(ctx, filepath.Join(m.Dir, "run"))
}

// run makes calls chosen by chance until ctx ends.
func (o *operators) run(ctx context.Context, t testing.TB, number int, rng *rand.Rand) {
	minions := make([]*minion, len(o.ids))
	for i, id := range o.ids {
		minions[i] = newMinion(t, id)
	}
	for ctx.Err() == nil {
		m := o.masters[rng.IntN(len(o.masters))]
		i := rng.IntN(len(o.ids))
		switch n := rng.IntN(20); {
		case n < 4:
			o.offer(number, m, minions[i])
		case n < 12:
			o.change(number, m, o.ids[i],
				[]string{"accept", "accept", "reject", "delete"}[rng.IntN(4)])
		case n < 16:
			o.lookKeys(number, m)
		case n < 18:
			o.lookMembers(number, m)
		case n < 19:
			o.order(number, m, o.votes, o.voter.ID, []string{"cluster.demote", "cluster.promote"},
				rng.IntN(2))
		default:
			o.order(number, m, o.drains, o.masters[rng.IntN(len(o.masters))].ID,
				[]string{"cluster.drain", "cluster.undrain"}, rng.IntN(2))
		}
		select {
		case <-time.After(time.Duration(rng.IntN(120)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (o *operators) offer(number int, m *e2e.Master, who *minion) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	begun := o.keys.Now()
	word, err := who.signIn(ctx, m)
	// A master that gave up waiting for the others also answers pending; its proposal may still
	// take effect.
	gaveUp := o.keys.Now()-begun > int64(3*time.Second)
	o.keys.AddOffer(number, begun, history.Call{Register: who.id, Verb: "offer", At: m.ID},
		history.Outcome{Unknown: err != nil || gaveUp, Value: word})
}

func (o *operators) change(number int, m *e2e.Master, id, action string) {
	c, err := at(context.Background(), m)
	if err != nil {
		return
	}
	defer c.Close()
	states := map[string][]string{
		"accept": {"minions_pre"}, "reject": {"minions_pre", "minions"},
		"delete": {"minions_pre", "minions", "minions_rejected", "minions_denied"},
	}
	var keys []operator.Key
	for _, s := range states[action] {
		keys = append(keys, operator.Key{ID: id, State: s})
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	begun := o.keys.Now()
	done, err := c.Change(ctx, operator.KeyChange{Action: action, Keys: keys, KeepAESKey: true,
		PreserveMinions: true})
	o.keys.Add(number, begun, history.Call{Register: id, Verb: action, At: m.ID},
		history.Outcome{Unknown: err != nil, Changed: len(done.Changed) > 0})
}

// lookKeys reads all keys at once. A list that the master itself calls old proves nothing.
func (o *operators) lookKeys(number int, m *e2e.Master) error {
	c, err := at(context.Background(), m)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	begun := o.keys.Now()
	lists, err := c.Lists(ctx, false)
	if err != nil {
		return err
	}
	if lists.Note != "" {
		return errors.New(lists.Note)
	}
	states := map[string]string{}
	for _, k := range lists.Keys {
		states[k.ID] = k.State
	}
	for _, id := range o.ids {
		o.keys.Add(number, begun, history.Call{Register: id, Verb: "look", At: m.ID}, history.Outcome{Value: states[id]})
	}
	return nil
}

// errNotSent means that nothing was asked: the master can't be reached.
var errNotSent = errors.New("not sent")

// runner calls a runner function on a master. text is its output besides the result.
func runner(m *e2e.Master, fun string, args ...any) (ret any, text string, err error) {
	c, err := at(context.Background(), m)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errNotSent, err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit+15*time.Second)
	defer cancel()
	r, err := c.Run(ctx, operator.RunRequest{Fun: fun, Args: args},
		func(_ string, v any) { text += fmt.Sprint(v) })
	if err == nil && !r.Success {
		err = fmt.Errorf("%s: %v", fun, r.Return)
	}
	return r.Return, text, err
}

// lookMembers reads votes and drains. The answer of a master that can't ask the leader proves
// nothing. Nor does the state of a member without contact, which hides whether it is drained.
func (o *operators) lookMembers(number int, m *e2e.Master) error {
	begun := o.votes.Now()
	drainsBegun := o.drains.Now()
	ret, note, err := runner(m, "cluster.members")
	if err != nil {
		return err
	}
	if note != "" {
		return errors.New(note)
	}
	view, _ := ret.(value.Map)
	val := "off"
	voters, _ := view.Get("voters")
	if list, ok := voters.([]any); ok {
		for _, v := range list {
			if v == o.voter.ID {
				val = "on"
			}
		}
	}
	o.votes.Add(number, begun, history.Call{Register: o.voter.ID, Verb: "look", At: m.ID}, history.Outcome{Value: val})
	peers, _ := view.Get("peers")
	list, _ := peers.(value.Map)
	for _, p := range list {
		id, _ := p.Key.(string)
		one, _ := p.Value.(value.Map)
		switch state := one.String("state"); state {
		case "draining":
			o.drains.Add(number, drainsBegun, history.Call{Register: id, Verb: "look", At: m.ID}, history.Outcome{Value: "on"})
		case "voter", "learner":
			o.drains.Add(number, drainsBegun, history.Call{Register: id, Verb: "look", At: m.ID}, history.Outcome{Value: "off"})
		}
	}
	return nil
}

// order changes a member by functions[which]. That turns the member's register on for 0 and off for
// 1; for votes it is the other way round.
func (o *operators) order(number int, m *e2e.Master, h *history.History, id string, functions []string,
	which int) {
	verb := []string{"on", "off"}[which]
	if h == o.votes {
		verb = []string{"off", "on"}[which]
	}
	begun := h.Now()
	ret, _, err := runner(m, functions[which], id)
	if err != nil && (errors.Is(err, errNotSent) || notTried(err)) {
		return
	}
	out := history.Outcome{Unknown: err != nil, Changed: true}
	if view, ok := ret.(value.Map); ok && functions[which] == "cluster.promote" {
		if voter, _ := view.Get("voter"); voter != true {
			out.Unknown = true // the vote comes once it has caught up
		}
	}
	h.Add(number, begun, history.Call{Register: id, Verb: verb, At: m.ID}, out)
}

// notTried reports a refusal, after which nothing has changed.
func notTried(err error) bool {
	for _, words := range []string{"would leave", "no other master is ready", "voters already"} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// trouble causes faults on the masters, one after the other, until ctx ends. Then it repairs them.
func trouble(ctx context.Context, t *testing.T, c *cluster, rng *rand.Rand) {
	wait := func(most time.Duration) {
		select {
		case <-time.After(most/2 + rand.N(most/2)):
		case <-ctx.Done():
		}
	}
	for wait(2 * time.Second); ctx.Err() == nil; wait(4 * time.Second) {
		m := c.Masters[rng.IntN(len(c.Masters))]
		other := c.others(m)[rng.IntN(len(c.Masters)-1)]
		switch rng.IntN(6) {
		case 0, 1:
			t.Logf("%s is cut off", m.ID)
			isolate(t, c.net, c.Masters, m)
			wait(8 * time.Second)
			c.net.heal(t)
		case 2:
			t.Logf("%s and %s don't hear each other", m.ID, other.ID)
			cut(t, c.net, m.Number, other.Number)
			wait(6 * time.Second)
			c.net.heal(t)
		case 3:
			t.Logf("%s is not heard by others", m.ID)
			for _, o := range c.others(m) {
				c.net.cutOneWay(t, m.Number, o.Number)
			}
			wait(6 * time.Second)
			c.net.heal(t)
		case 4:
			t.Logf("%s is killed", m.ID)
			m.Kill(t)
			wait(3 * time.Second)
			m.Run(t)
		case 5:
			t.Logf("%s is stopped", m.ID)
			m.Freeze(t)
			wait(7 * time.Second)
			m.Thaw(t)
		}
	}
}

// TestLinearizable changes and reads keys and members through all masters at the same time, under
// partitions, kills and stops. The result is as if there were one master. CLUSTERMASTER_LONG=1
// makes it longer.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	rng := seed(t)
	rounds, during := 1, 30*time.Second
	if long() {
		rounds, during = 4, 3*time.Minute
	}
	for range rounds {
		linearizable(t, rng, during)
	}
}

func linearizable(t *testing.T, rng *rand.Rand, during time.Duration) {
	c := newCluster(t, 3, "")
	o := newOperators(rng, c.Masters, "ada", "bob", "cyd")
	ctx, cancel := context.WithTimeout(t.Context(), 4*during)
	defer cancel()
	wait := o.start(ctx, t, 4, rng)
	go func() {
		look := time.NewTicker(during)
		defer look.Stop()
		for ; ; look.Reset(during / 8) {
			select {
			case <-look.C:
				if o.few() == "" {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	trouble(ctx, t, c, rng)
	wait()
	o.judge(t)
	for _, m := range c.Masters {
		succeeds(t, m.Runner(t, "cluster.undrain"))
	}
	oneHistory(t, c.Masters...)
}
