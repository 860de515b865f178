package event

import (
	"fmt"

	"clustermaster/value"
)

// trimmedValue replaces a value that was too large for an event; clients know the word.
const trimmedValue = "VALUE_TRIMMED"

// trim makes data, a packed map, at most limit bytes long by replacing its largest values,
// including those inside maps, by VALUE_TRIMMED: first those above half the limit, then above 40 %,
// and so on (max_event_size, Salt 3008). A map whose keys alone are too large keeps only its stamp.
func trim(data value.Raw, limit int) (value.Raw, error) {
	m, err := value.UnpackRawMap(data)
	if err != nil {
		return nil, fmt.Errorf("trim event: %w", err)
	}
	for percent := 50; percent >= 0; percent -= 10 {
		if m, err = trimValues(m, limit*percent/100, 0); err != nil {
			return nil, fmt.Errorf("trim event: %w", err)
		}
		packed, err := m.Pack()
		if err != nil {
			return nil, fmt.Errorf("trim event: %w", err)
		}
		if len(packed) <= limit {
			return packed, nil
		}
	}
	stamp, _ := m.Get("_stamp")
	return value.RawMap{}.Append("_stamp", stamp).Pack()
}

func trimValues(m value.RawMap, largest, depth int) (value.RawMap, error) {
	word, err := value.Pack(trimmedValue)
	if err != nil {
		return nil, err
	}
	for i, p := range m {
		if len(p.Value) <= max(largest, len(word)) || p.Key == "_stamp" {
			continue
		}
		if !p.Value.IsMap() || depth == 32 {
			m[i].Value = word
			continue
		}
		inner, err := value.UnpackRawMap(p.Value)
		if err != nil {
			return nil, err
		}
		if inner, err = trimValues(inner, largest, depth+1); err != nil {
			return nil, err
		}
		packed, err := inner.Pack()
		if err != nil {
			return nil, err
		}
		m[i].Value = packed
	}
	return m, nil
}
