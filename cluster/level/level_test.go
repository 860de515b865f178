package level

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/descriptorpb"
)

func TestTable(t *testing.T) {
	t.Parallel()
	type id struct {
		kind   Kind
		name   string
		number int
	}
	seen := make(map[id]bool)
	last := Base
	for _, e := range Table() {
		if e.Since < last || e.Since > Supported() {
			t.Errorf("%s %s is of level %d after one of level %d; levels are 1 to %d, in order",
				e.Kind, e.Name, e.Since, last, Supported())
		}
		last = e.Since
		key := id{e.Kind, e.Name, e.Number}
		if e.Kind == Command || e.Kind == Record {
			key.name = ""
		}
		if seen[key] {
			t.Errorf("%s %s %d is there twice", e.Kind, e.Name, e.Number)
		}
		seen[key] = true
	}
	for n := Base; n <= Supported(); n++ {
		if Release(n) == "" {
			t.Errorf("no release brought level %d", n)
		}
	}
	if Release(0) != "" || Release(Supported()+1) != "" {
		t.Error("an unknown level has a release")
	}
	if OfCommand(0xfe) != 0 || OfRecord(0xfe) != 0 || OfRPC("/x/Y") != 0 ||
		OfField("x", "y") != 0 || FormatAt("x", 9) != 0 {
		t.Error("something that is not in the table has a level")
	}
}

func TestTooNewErrorNamesTheRelease(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]*TooNewError{
		"install release 9.8.7 or newer":           {Level: 9, Release: "9.8.7"},
		"written at level 9":                       {Level: 9},
		"install the release of the other members": {},
	} {
		if got := e.Error(); !strings.Contains(got, want) ||
			!strings.Contains(got, "runs release "+Release(Supported())) {
			t.Errorf("got %q, want %q and the release that runs", got, want)
		}
	}
}

func TestUnknownFieldsAreFoundAtAnyDepth(t *testing.T) {
	t.Parallel()
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 7777, protowire.VarintType), 1)
	inner := &descriptorpb.FieldDescriptorProto{}
	deep := &descriptorpb.FileDescriptorProto{MessageType: []*descriptorpb.DescriptorProto{{},
		{Field: []*descriptorpb.FieldDescriptorProto{{}, inner}}}}
	if err := CheckMessage(deep); err != nil {
		t.Fatalf("nothing unknown: got %v", err)
	}
	inner.ProtoReflect().SetUnknown(unknown)
	var e *UnknownFieldError
	if err := CheckMessage(deep); !errors.As(err, &e) || e.Field != 7777 ||
		e.Message != "google.protobuf.FieldDescriptorProto" {
		t.Errorf("two lists down: got %v", err)
	}
	top := &descriptorpb.FileDescriptorProto{}
	top.ProtoReflect().SetUnknown(unknown)
	if err := CheckMessage(top); !errors.As(err, &e) || e.Field != 7777 {
		t.Errorf("at the top: got %v", err)
	}
}
