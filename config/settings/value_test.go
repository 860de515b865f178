package settings

import (
	"math/big"
	"reflect"
	"testing"

	"clustermaster/config"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// Whatever an option holds can be packed, and no secret is in it.
func TestValue(t *testing.T) {
	t.Parallel()
	read,
		err := yaml11.Load([]byte("{large: 123456789012345678901234567890, set: !!set {a, b}, list: [1, [x]]}"))
	if err != nil {
		t.Fatal(err)
	}
	large, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	got := Value(map[string]any{"option": value.Map{{Key: "read", Value: read},
		{Key: "key", Value: config.Secret("x")}, {Key: "names", Value: []string{"n"}}}})
	want := value.Map{{Key: "option", Value: value.Map{
		{Key: "read", Value: value.Map{
			{Key: "large", Value: large}, {Key: "set", Value: value.Set{"a", "b"}},
			{Key: "list", Value: []any{int64(1), []any{"x"}}},
		}},
		{Key: "key", Value: "[redacted]"}, {Key: "names", Value: []any{"n"}},
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := value.Pack(got); err != nil {
		t.Error(err)
	}
}
