package event

import (
	"bytes"
	"testing"

	"clustermaster/value"
)

// Whatever a minion put into an event: it is a map within the limit with the bus's stamp, or
// refused.
func FuzzTrim(f *testing.F) {
	stamp, err := value.Pack("2026-11-21T09:33:35.299638")
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range []value.Map{
		{}, {{Key: "data", Value: bytes.Repeat([]byte("x"), 500)}},
		{{Key: "data",
			Value: value.Map{{Key: "deep",
				Value: value.Map{{Key: "er", Value: string(bytes.Repeat([]byte("x"), 300))}}}}},
			{Key: "id", Value: "web1"}},
		{{Key: string(bytes.Repeat([]byte("k"), 400)), Value: 1},
			{Key: "_stamp", Value: "its own"}},
	} {
		b, err := value.Pack(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint16(200))
	}
	f.Fuzz(func(t *testing.T, data []byte, limit uint16) {
		given, err := value.UnpackRawMap(data)
		if err != nil {
			return
		}
		packed, err := given.Without("_stamp").Append("_stamp", stamp).Pack() // as FireRawMap does
		if err != nil {
			return
		}
		out, err := trim(packed, int(limit))
		if err != nil {
			return
		}
		m, err := value.UnpackRawMap(out)
		if err != nil {
			t.Fatalf("no map any more: %v", err)
		}
		if got, _ := m.Get("_stamp"); !bytes.Equal(got, stamp) {
			t.Errorf("the stamp is %x", got)
		}
		if len(out) > int(limit) && len(m) > 1 {
			t.Errorf("%d bytes, the limit is %d", len(out), limit)
		}
		if len(packed) <= int(limit)/2 && len(m) != len(given.Without("_stamp"))+1 {
			t.Errorf("%d of %d keys are left of what was small enough", len(m)-1, len(given))
		}
	})
}
