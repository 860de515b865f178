package orders

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"clustermaster/salt/runner"
	"clustermaster/serve/event"
	"clustermaster/value"
)

// Everywhere runs what copies modules of the site (saltutil.sync_*) on all masters at once: an
// event asks the others, and each says when it is done.
type Everywhere struct {
	runner.PythonHost // this master's
	ID                string
	Members           func() []string // nodes of the cluster, this one among them
	Alive             func(node string) bool
	Bus               *event.Bus
	Mesh              *event.Mesh
	NewID             func() string // never the same twice
	Log               *slog.Logger
}

// Tags of the exchange; the id of a question follows. Minions can't fire them.
const (
	syncAskTag    = "salt/cluster/extensions/ask/"
	syncAnswerTag = "salt/cluster/extensions/answer/"
)

// askAgain is how often masters are asked that have not answered.
const askAgain = 2 * time.Second

// syncTime bounds the copying on the other masters.
const syncTime = time.Minute

// Runner implements runner.PythonHost. It returns what this master's function does, or the error
// that names the masters that have not copied.
func (e Everywhere) Runner(ctx context.Context, fun string, args []any, kwargs value.Map) (any,
	error) {
	left := slices.DeleteFunc(slices.Clone(e.Members()),
		func(node string) bool { return idOf(node) == e.ID })
	question := e.NewID()
	sub, err := e.Mesh.Subscribe(ctx, syncAnswerTag+question)
	if err != nil {
		return nil, fmt.Errorf("ask the other masters: %w", err)
	}
	defer sub.Close()
	ask := func() {
		e.Bus.Fire(syncAskTag+question, value.Map{{Key: "master", Value: e.ID},
			{Key: "fun", Value: fun}, {Key: "kwargs", Value: kwargs}})
	}
	ask()
	done, err := e.PythonHost.Runner(ctx, fun, args, kwargs)
	if err != nil {
		return done, err
	}
	return done, e.wait(ctx, sub, ask, left)
}

func idOf(node string) string { id, _, _ := strings.Cut(node, "/"); return id }

// wait hears the other masters' answers, and asks again: one that has just started may not have
// heard.
func (e Everywhere) wait(ctx context.Context, sub *event.Subscription, ask func(),
	left []string) error {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	var failed []error
	gone := func(node string) bool {
		if e.Alive(node) {
			return false
		}
		failed = append(failed, fmt.Errorf(
			"%s can't be reached: the other masters have copied their modules; call it again later",
			idOf(node)))
		return true
	}
	left = slices.DeleteFunc(left, gone)
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for len(left) > 0 {
		select {
		case <-again.C:
			left = slices.DeleteFunc(left, gone)
			ask()
		case <-ctx.Done():
			return errors.Join(append(failed, fmt.Errorf(
				"%s did not answer in time: call it again, and look at its log",
				strings.Join(ids(left), ", ")))...)
		case a, ok := <-sub.C:
			if !ok {
				return context.Canceled
			}
			data, err := a.Map()
			if err != nil {
				continue
			}
			at := slices.IndexFunc(left,
				func(node string) bool { return idOf(node) == data.String("master") })
			if at < 0 {
				continue
			}
			if text := data.String("error"); text != "" {
				failed = append(failed, fmt.Errorf("%s: %s", idOf(left[at]), text))
			}
			left = slices.Delete(left, at, at+1)
		}
	}
	return errors.Join(failed...)
}

// Run does what other masters ask for until ctx ends, one thing at a time.
func (e Everywhere) Run(ctx context.Context) error {
	sub := e.Mesh.Follow(syncAskTag)
	defer sub.Close()
	last, reply := "", value.Map(nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case a, ok := <-sub.C:
			if !ok {
				return nil
			}
			data, err := a.Map()
			if err != nil || data.String("master") == e.ID ||
				!strings.HasPrefix(data.String("fun"), "saltutil.sync_") {
				continue
			}
			question := a.Tag[len(syncAskTag):]
			if question != last {
				last, reply = question, e.answer(ctx, data)
			}
			e.Bus.Fire(syncAnswerTag+question, reply)
		}
	}
}

// answer does what was asked, and returns what this master says of it.
func (e Everywhere) answer(ctx context.Context, data value.Map) value.Map {
	fun := data.String("fun")
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	given, _ := data.Get("kwargs")
	kwargs, _ := given.(value.Map)
	e.Log.Info("modules are copied, as another master asked", "fun", fun, "master",
		data.String("master"))
	reply := value.Map{{Key: "master", Value: e.ID}, {Key: "error", Value: ""}}
	if _, err := e.PythonHost.Runner(ctx, fun, nil, kwargs); err != nil {
		e.Log.Error("modules can't be copied", "fun", fun, "err", err)
		reply = reply.Set("error", err.Error())
	}
	return reply
}
