package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"clustermaster/cluster/level"
)

var updateMessages = flag.Bool("update-messages", false,
	"write testdata/level1.messages: only while level 1 is not released")

// TestEveryRPCHasItsLevel compares the services between peers with the table of package level.
func TestEveryRPCHasItsLevel(t *testing.T) {
	t.Parallel()
	want := make(map[string]bool)
	for _, e := range level.Table() {
		if e.Kind == level.RPC {
			want[e.Name] = true
		}
	}
	for _, s := range peerServices() {
		for i := range s.Methods().Len() {
			name := "/" + string(s.FullName()) + "/" + string(s.Methods().Get(i).Name())
			if !want[name] {
				t.Errorf("%s has no level: give it one in the table of package level", name)
			}
			delete(want, name)
		}
	}
	for name := range want {
		if !strings.Contains(name, "future") {
			t.Errorf("%s of the table of package level is not there", name)
		}
	}
}

// TestEveryMessageFieldHasItsLevel lists the fields of all messages of level 1. One that is not in
// the list came later and has a line in the table of package level.
func TestEveryMessageFieldHasItsLevel(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "level1.messages")
	old, err := os.ReadFile(path)
	if err != nil && !*updateMessages {
		t.Fatal(err)
	}
	known := strings.Fields(string(old))
	var found []string
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(f.Package()), "clustermaster.") ||
			f.Package() == "clustermaster.operator" || isLater(f) {
			return true
		}
		for i := range f.Messages().Len() {
			m := f.Messages().Get(i)
			for j := range m.Fields().Len() {
				name := string(m.Name()) + "." + string(m.Fields().Get(j).Name())
				full := string(f.Package()) + "." + name
				if level.OfField(string(m.FullName()), string(m.Fields().Get(j).Name())) == 0 {
					found = append(found, full)
				}
			}
		}
		return true
	})
	slices.Sort(found)
	if *updateMessages {
		if err := os.WriteFile(path, []byte(strings.Join(found, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, name := range found {
		if !slices.Contains(known, name) {
			t.Errorf("%s is not of level 1: give it a level in the table of package level", name)
		}
	}
	for _, name := range known {
		if !slices.Contains(found, name) {
			t.Errorf("%s of level 1 is gone: members of level 1 send it", name)
		}
	}
}

// isLater reports whether all RPCs of a file came after level 1: no member of level 1 meets its
// messages, and a level for each RPC is enough.
func isLater(f protoreflect.FileDescriptor) bool {
	count := 0
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		for j := range s.Methods().Len() {
			count++
			if level.OfRPC("/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name())) <= level.Base {
				return false
			}
		}
	}
	return count > 0
}

func peerServices() []protoreflect.ServiceDescriptor {
	var out []protoreflect.ServiceDescriptor
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			if strings.HasPrefix(string(f.Package()), "clustermaster.") &&
				f.Package() != "clustermaster.operator" {
				out = append(out, f.Services().Get(i))
			}
		}
		return true
	})
	return out
}
