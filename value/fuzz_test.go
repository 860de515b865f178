package value_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"clustermaster/value"
	"clustermaster/value/valuetest"
)

// seeds adds every short message of the vectors to a fuzz target, and odd ones.
func seeds(f *testing.F) {
	for _, v := range packValues() {
		if b, err := value.Pack(v); err == nil && len(b) < 4096 {
			f.Add(b)
		}
	}
	for _, m := range valuetest.Dense(300) {
		f.Add(m)
	}
	for _, s := range []string{"ddffffffff", "8190c0", "c7184e00", "d64f92a101c0",
		"cb7ff8000000000001", "d6ff00000000", "81c401ff01", "d9", "df00000002"} {
		f.Add(unhex(f, s))
	}
}

func mustPack(t *testing.T, v any) []byte {
	t.Helper()
	b, err := value.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzUnpack(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var v any
		var err error
		valuetest.Bounded(t, b, func() { v, err = value.Unpack(b) })
		weight, weighErr := value.Weigh(b)
		if (err == nil) != (weighErr == nil) {
			t.Fatalf("unpack says %v, Weigh %v", err, weighErr)
		}
		if err == nil {
			valuetest.Within(t, weight, func() { v, err = value.Unpack(b) })
		}
		if err != nil {
			if v != nil || !errors.Is(err, value.ErrMalformed) {
				t.Fatalf("got %v beside %v", v, err)
			}
			return
		}
		packed, err := value.Pack(v)
		if err != nil {
			t.Fatalf("pack %#v: %v", v, err)
		}
		again, err := value.Unpack(packed)
		if err != nil {
			t.Fatalf("unpack %x: %v", packed, err)
		}
		repacked, err := value.Pack(again)
		if err != nil || !bytes.Equal(repacked, packed) {
			t.Fatalf("packed %x, then %x, %v", packed, repacked, err)
		}
		fresh, err := value.PackNew(v)
		if err != nil {
			t.Fatalf("pack new %#v: %v", v, err)
		}
		if again, err = value.Unpack(fresh); err != nil {
			t.Fatalf("unpack %x: %v", fresh, err)
		}
		if repacked, err = value.Pack(again); err != nil || !bytes.Equal(repacked, packed) {
			t.Fatalf("through the new specification: %x, want %x, %v", repacked, packed, err)
		}
	})
}

func FuzzUnpackRawMap(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m value.RawMap
		var err error
		valuetest.Bounded(t, b, func() { m, err = value.UnpackRawMap(b) })
		full, fullErr := value.UnpackMap(b)
		if (err == nil) != (fullErr == nil) {
			t.Fatalf("raw says %v, full %v", err, fullErr)
		}
		var entries value.Map
		entriesErr := value.Raw(b).Entries(func(key,
			val value.Raw) {
			entries = append(entries, value.Pair{Key: key, Value: val})
		})
		if (entriesErr == nil) != (fullErr == nil) {
			t.Fatalf("entries say %v, full %v", entriesErr, fullErr)
		}
		if err != nil {
			if m != nil || !errors.Is(err, value.ErrMalformed) ||
				!errors.Is(entriesErr, value.ErrMalformed) {
				t.Fatalf("got %v beside %v, %v", m, err, entriesErr)
			}
			return
		}
		for i, e := range entries {
			k, kErr := e.Key.(value.Raw).Unpack()
			v, vErr := e.Value.(value.Raw).Unpack()
			if kErr != nil || vErr != nil ||
				!bytes.Equal(mustPack(t, value.Map{{Key: k, Value: v}}),
					mustPack(t, value.Map{full[i]})) {
				t.Fatalf("entry %d is %v %v, want %v (%v, %v)", i, k, v, full[i], kErr, vErr)
			}
		}
		packed, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		again, err := value.UnpackRawMap(packed)
		if err != nil || !reflect.DeepEqual(again, m) && len(m) > 0 {
			t.Fatalf("again %v, %v, want %v", again, err, m)
		}
		decoded, err := m.Map()
		if err != nil {
			t.Fatal(err)
		}
		if a, b := mustPack(t, decoded), mustPack(t, full); !bytes.Equal(a, b) {
			t.Fatalf("raw %x, full %x", a, b)
		}
		for _, p := range m {
			if v, ok := m.Get(p.Key); !p.Other() && (!ok || v == nil) {
				t.Fatalf("key %q is lost", p.Key)
			}
		}
		for _, p := range full {
			key, ok := p.Key.(string)
			if !ok {
				continue
			}
			want, _ := full.Get(key) // the last of equal keys
			got, _ := m.Get(key)
			if v, err := got.Unpack(); err != nil || !bytes.Equal(mustPack(t, v), mustPack(t, want)) ||
				!bytes.Equal(got, value.Raw(b).Lookup(key)) {
				t.Fatalf("key %q: %v (%v), want %v", key, v, err, want)
			}
		}
	})
}
