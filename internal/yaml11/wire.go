package yaml11

import (
	"math/big"

	"clustermaster/wire"
)

// ToWire makes wire values of what this package reads: a set becomes a list, an
// integer of more than 64 bits its text, as they travel from Salt too.
func ToWire(v any) any {
	switch v := v.(type) {
	case Map:
		out := make(wire.Map, len(v))
		for i, p := range v {
			out[i] = wire.Pair{Key: ToWire(p.Key), Value: ToWire(p.Value)}
		}
		return out
	case []any:
		return wireList(v)
	case Set:
		return wireList(v)
	case *big.Int:
		return v.String()
	}
	return v
}

func wireList(list []any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = ToWire(v)
	}
	return out
}
