package settings

import (
	"reflect"
	"testing"

	"clustermaster/config"
	"clustermaster/internal/yaml11"
	"clustermaster/wire"
)

// Whatever an option holds can be packed, and no secret is in it.
func TestValue(t *testing.T) {
	t.Parallel()
	read, err := yaml11.Load([]byte("{large: 123456789012345678901234567890, set: !!set {a, b}, list: [1, [x]]}"))
	if err != nil {
		t.Fatal(err)
	}
	got := Value(map[string]any{"option": yaml11.Map{{Key: "read", Value: read}, {Key: "key", Value: config.Secret("x")}, {Key: "names", Value: []string{"n"}}}})
	want := wire.Map{{Key: "option", Value: wire.Map{
		{Key: "read", Value: wire.Map{
			{Key: "large", Value: "123456789012345678901234567890"}, {Key: "set", Value: []any{"a", "b"}}, {Key: "list", Value: []any{int64(1), []any{"x"}}},
		}},
		{Key: "key", Value: "[redacted]"}, {Key: "names", Value: []any{"n"}},
	}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := wire.Pack(got); err != nil {
		t.Error(err)
	}
}
