package master

import (
	"bytes"
	"strings"

	"clustermaster/value"
)

// stateParts separates the parts of a state's name in a return: module, id, name, function.
var stateParts = []byte("_|-")

// countStates counts the results in the return of a state run. It reads the encoded return once and
// allocates nothing, because returns may be large.
func (m *Master) countStates(load value.RawMap) {
	if !strings.HasPrefix(load.String("fun"), "state.") {
		return
	}
	ret, _ := load.Get("return")
	_ = ret.Entries(func(key, state value.Raw) { // no map, as when rendering failed
		if name, _ := key.Bytes(); !bytes.Contains(name, stateParts) {
			return
		}
		result, err := value.ReadHead(state.Lookup("result"), 0)
		if err != nil {
			return
		}
		switch result.Kind {
		case value.KindTrue:
			m.metrics.stateSucceeded.Inc()
		case value.KindFalse:
			m.metrics.stateFailed.Inc()
		case value.KindNil:
			m.metrics.stateWould.Inc()
		default:
			return
		}
		changes, err := value.ReadHead(state.Lookup("changes"), 0)
		if err == nil && changes.Kind == value.KindMap && changes.N > 0 {
			m.metrics.stateChanges.Inc()
		}
	})
}
