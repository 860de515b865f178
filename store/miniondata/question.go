package miniondata

import (
	"context"
	"errors"
	"fmt"

	"clustermaster/salt/target"
	"clustermaster/store/ringstore"
	"clustermaster/value"
)

// Ask sends a target's question about grains and pillar (without a pillarenv) to the masters that
// own the minions' records. It calls fn, not concurrently, with each minion for which a term holds,
// and more than once if terms on grains and on pillar do. The coverage says what could not be read.
func (d *Data) Ask(ctx context.Context, q target.Question,
	fn func(id string, hits target.Hits)) (ringstore.Coverage, error) {
	question, err := q.Pack()
	if err != nil {
		return ringstore.Coverage{}, err
	}
	cover, err := d.store.Ask(ctx, ringstore.SpaceMinions, question, q.IDs,
		func(place string, hits []byte) { fn(place, hits) })
	if errors.Is(err, ringstore.ErrTooCostly) {
		return cover, fmt.Errorf("ask about all minions: %w", target.ErrTooCostly)
	}
	if err != nil {
		return cover, fmt.Errorf("ask about all minions: %w", err)
	}
	return cover, nil
}

// Questions tells the ring store how to answer Ask on the masters that hold the records.
type Questions struct{}

var _ ringstore.Compiler = Questions{}

// Compile prepares a packed question.
func (Questions) Compile(question []byte) (ringstore.Judge, error) {
	q, err := target.ParseQuestion(question)
	if err != nil {
		return nil, err
	}
	j := judge{q.Judge(), nil}
	for _, l := range j.Judge.Looks() {
		look := ringstore.Look{Name: grainsName, Key: l.Key, Whole: l.Whole}
		if l.Pillar {
			look.Name = pillarName
		}
		j.looks = append(j.looks, look)
	}
	return j, nil
}

// Parts finds the values of keys in packed grains or a packed pillar.
func (Questions) Parts(val []byte, keys map[string]int, parts []ringstore.Part) error {
	return target.Parts(value.Raw(val), keys, func(i int, part value.Raw) {
		parts[i] = ringstore.Part{Text: string(part), Found: true}
	})
}

type judge struct {
	*target.Judge
	looks []ringstore.Look
}

func (j judge) Looks() []ringstore.Look { return j.looks }

func (j judge) Hit(look int, p ringstore.Part, hits []byte) { j.Part(look, p.Text, p.Found, hits) }
