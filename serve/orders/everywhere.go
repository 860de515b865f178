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

// Everywhere runs the functions that copy the site's modules (saltutil.sync_*) on all masters at
// once: an event asks the other masters, and each reports when it is done. First each master copies
// the modules to a place beside its own; once all have, it tells them to switch.
type Everywhere struct {
	runner.PythonHost // this master's
	Stager            Stager
	ID                string
	Members           func() []string // nodes of the cluster, including this one
	Alive             func(node string) bool
	Bus               *event.Bus
	Mesh              *event.Mesh
	NewID             func() string // never the same twice
	Log               *slog.Logger
}

// Stager copies modules of this master in two steps.
type Stager interface {
	Stage(ctx context.Context, id, fun string, kwargs value.Map) (any, error)
	Switch(ctx context.Context, id string) error
	Drop(id string)
}

// Tags of the exchange, each followed by the id of a question. Minions can't fire them.
const (
	syncAskTag    = "salt/cluster/extensions/ask/"
	syncAnswerTag = "salt/cluster/extensions/answer/"
)

// Steps of a question.
const (
	stepStage  = "stage"
	stepSwitch = "switch"
	stepDrop   = "drop" // gets no answer
)

// askAgain is the time between questions to masters that have not answered.
const askAgain = 2 * time.Second

// syncTime bounds each step on the other masters.
const syncTime = time.Minute

// exchange is one call on all masters.
type exchange struct {
	e      Everywhere
	id     string
	fun    string
	kwargs value.Map
	sub    *event.Subscription
}

// Runner implements runner.PythonHost. It returns the result of this master's function, or an error
// that names the masters that have not copied. If one in contact can't copy, none has switched.
func (e Everywhere) Runner(ctx context.Context, fun string, _ []any, kwargs value.Map) (any,
	error) {
	others := slices.DeleteFunc(slices.Clone(e.Members()),
		func(node string) bool { return idOf(node) == e.ID })
	x := exchange{e: e, id: e.NewID(), fun: fun, kwargs: kwargs}
	var err error
	if x.sub, err = e.Mesh.Subscribe(ctx, syncAnswerTag+x.id); err != nil {
		return nil, fmt.Errorf("ask the other masters: %w", err)
	}
	defer x.sub.Close()
	x.ask(stepStage)
	done, err := e.Stager.Stage(ctx, x.id, fun, kwargs)
	var ready, away []string
	if err == nil {
		ready, away, err = x.wait(ctx, stepStage, others)
	}
	if err != nil {
		x.ask(stepDrop)
		e.Stager.Drop(x.id)
		return done, fmt.Errorf("%w; no master has switched to other modules", err)
	}
	x.ask(stepSwitch)
	err = e.Stager.Switch(ctx, x.id)
	_, lost, late := x.wait(ctx, stepSwitch, ready)
	var failed []error
	for _, node := range append(away, lost...) {
		failed = append(failed, fmt.Errorf(
			"%s can't be reached: the other masters have copied their modules; call it again later",
			idOf(node)))
	}
	return done, errors.Join(append(failed, err, late)...)
}

func (x exchange) ask(step string) {
	x.e.Bus.Fire(syncAskTag+x.id, value.Map{{Key: "master", Value: x.e.ID},
		{Key: "step", Value: step}, {Key: "fun", Value: x.fun}, {Key: "kwargs", Value: x.kwargs}})
}

func idOf(node string) string { id, _, _ := strings.Cut(node, "/"); return id }

// wait receives the other masters' answers, and repeats the question for a master that has just
// started. The error names those that failed or did not answer.
func (x exchange) wait(ctx context.Context, step string, left []string) (ready, away []string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	var failed []error
	gone := func(node string) bool {
		if x.e.Alive(node) {
			return false
		}
		away = append(away, node)
		return true
	}
	left = slices.DeleteFunc(slices.Clone(left), gone)
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for len(left) > 0 {
		select {
		case <-again.C:
			left = slices.DeleteFunc(left, gone)
			x.ask(step)
		case <-ctx.Done():
			return ready, away, errors.Join(append(failed, fmt.Errorf(
				"%s did not answer in time: call it again, and look at its log",
				strings.Join(ids(left), ", ")))...)
		case a, ok := <-x.sub.C:
			if !ok {
				return ready, away, context.Canceled
			}
			data, err := a.Map()
			if err != nil || data.String("step") != step {
				continue
			}
			at := slices.IndexFunc(left,
				func(node string) bool { return idOf(node) == data.String("master") })
			if at < 0 {
				continue
			}
			if text := data.String("error"); text != "" {
				failed = append(failed, fmt.Errorf("%s: %s", idOf(left[at]), text))
			} else {
				ready = append(ready, left[at])
			}
			left = slices.Delete(left, at, at+1)
		}
	}
	return ready, away, errors.Join(failed...)
}

// Run does what other masters ask, one request at a time, until ctx ends.
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
			id, step := a.Tag[len(syncAskTag):], data.String("step")
			if step == stepDrop {
				e.Stager.Drop(id)
				continue
			}
			if last != step+id {
				last, reply = step+id, e.answer(ctx, id, step, data)
			}
			e.Bus.Fire(syncAnswerTag+id, reply)
		}
	}
}

// answer does what was asked, and returns this master's answer.
func (e Everywhere) answer(ctx context.Context, id, step string, data value.Map) value.Map {
	fun := data.String("fun")
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	given, _ := data.Get("kwargs")
	kwargs, _ := given.(value.Map)
	e.Log.Info("modules copied, as another master asked", "step", step, "fun", fun, "master",
		data.String("master"))
	var err error
	switch step {
	case stepStage:
		_, err = e.Stager.Stage(ctx, id, fun, kwargs)
	case stepSwitch:
		err = e.Stager.Switch(ctx, id)
	default:
		err = fmt.Errorf("the step %q is unknown to this release", step)
	}
	reply := value.Map{{Key: "master", Value: e.ID}, {Key: "step", Value: step},
		{Key: "error", Value: ""}}
	if err != nil {
		e.Log.Error("modules can't be copied", "step", step, "fun", fun, "err", err)
		reply = reply.Set("error", err.Error())
	}
	return reply
}
