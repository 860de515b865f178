package commands

import "testing"

// scenes are all lines of the checklist, in an order in which they can run.
func scenes() []scene {
	var all []scene
	for _, list := range [][]scene{saltScenes(), accessScenes(), externalScenes(), targetScenes(),
		outputScenes(), batchScenes(), copyScenes(), runnerScenes(), cacheScenes(), familyScenes(),
		stateRunScenes(), keyScenes(), absentScenes()} {
		all = append(all, list...)
	}
	return all
}

// TestCommands runs the checklist: first the scenes that only look, side by side; then those that
// need the masters alone.
func TestCommands(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	t.Run("beside", func(t *testing.T) {
		for _, c := range scenes() {
			if !c.alone {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					p.play(t, c)
				})
			}
		}
	})
	for _, c := range scenes() {
		if c.alone {
			t.Run(c.name, func(t *testing.T) { p.play(t, c) })
		}
	}
}
