package level

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// UnknownFieldError says that a message holds a field that this program does not know, which it
// must not drop.
type UnknownFieldError struct {
	Message string // full name
	Field   int    // the first such field's number; 0: the bytes don't even have one
}

func (e *UnknownFieldError) Error() string {
	return fmt.Sprintf("field %d of %s is unknown to release %s: a newer release sent it", e.Field,
		e.Message, Release(Supported()))
}

// CheckMessage returns an *UnknownFieldError if m, or a message in it, holds a field that this
// program does not know.
func CheckMessage(m proto.Message) error { return check(m.ProtoReflect()) }

// nested remembers the fields of each kind of message that hold messages: most have none, and cost
// one look.
var nested sync.Map // protoreflect.FullName to []protoreflect.FieldDescriptor

func check(m protoreflect.Message) error {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		return &UnknownFieldError{string(m.Descriptor().FullName()), firstField(unknown)}
	}
	for _, f := range fieldsWithMessages(m.Descriptor()) {
		switch {
		case !m.Has(f):
		case f.IsList():
			list := m.Get(f).List()
			for i := range list.Len() {
				if err := check(list.Get(i).Message()); err != nil {
					return err
				}
			}
		case f.IsMap():
			var err error
			m.Get(f).Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				err = check(v.Message())
				return err == nil
			})
			if err != nil {
				return err
			}
		default:
			if err := check(m.Get(f).Message()); err != nil {
				return err
			}
		}
	}
	return nil
}

func fieldsWithMessages(d protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if known, ok := nested.Load(d.FullName()); ok {
		return known.([]protoreflect.FieldDescriptor)
	}
	var out []protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.IsMap() && f.MapValue().Message() != nil || !f.IsMap() && f.Message() != nil {
			out = append(out, f)
		}
	}
	nested.Store(d.FullName(), out)
	return out
}

// firstField reads the number of the first field from its tag, a varint of number << 3 and type.
func firstField(b []byte) int {
	tag := uint64(0)
	for i, c := range b {
		if i > 4 {
			return 0
		}
		tag |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int(tag >> 3)
		}
	}
	return 0
}
