package modules

import (
	"slices"

	"clustermaster/value"
)

// masked is what Salt 3008 puts in place of a pillar value.
const masked = "**********"

// maskedOutside are the functions whose returns Salt masks outside of templates, with the position
// of unmask among their arguments, or -1.
var maskedOutside = map[string]int{
	"pillar.get": 7, "pillar.fetch": 7, "pillar.item": -1, "pillar.items": -1, "pillar.ext": 2,
	"pillar.raw": 1,
}

// outsideTemplates returns what a call outside of a template shows of its return v: Salt masks
// pillar values unless unmask or, for all items, pillar_mask_output says otherwise.
func outsideTemplates(opts value.Map, fun string, args []any, kwargs value.Map, v any) any {
	at, ok := maskedOutside[fun]
	if !ok {
		return v
	}
	unmask, _ := kwargs.Get("unmask")
	switch {
	case at >= 0 && at < len(args):
		unmask = args[at]
	case fun == "pillar.items" && len(args) > 0:
		unmask = nil // Salt's pillar.items passes it on to nobody
	}
	if unmask == nil && fun == "pillar.items" && len(args) == 0 {
		option, given := opts.Get("pillar_mask_output")
		unmask = given && !value.Truth(option)
	}
	if value.Truth(unmask) || unmask == nil && fun == "pillar.raw" {
		return v
	}
	return mask(v)
}

// mask replaces every value in v that is neither nil nor empty nor zero.
func mask(v any) any {
	switch x := value.Plain(v).(type) {
	case value.Map:
		out := slices.Clone(x)
		for i := range out {
			out[i].Value = mask(out[i].Value)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, each := range x {
			out[i] = mask(each)
		}
		return out
	case []byte:
		if len(x) == 0 {
			return x
		}
		return []byte(masked)
	default:
		if !value.Truth(x) {
			return x
		}
		return masked
	}
}
