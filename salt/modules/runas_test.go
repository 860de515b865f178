package modules

import (
	"os"
	"os/user"
	"strconv"
	"testing"
)

// TestGroup: a command runs in the given group, and an unknown group is an error.
// Salt uses sudo for this.
func TestGroup(t *testing.T) {
	t.Parallel()
	group, err := user.LookupGroupId(strconv.Itoa(os.Getgid()))
	if os.Getuid() == 0 { // root may take any group
		group, err = user.LookupGroup("daemon")
	}
	if err != nil {
		t.Fatal(err)
	}
	m := New(Deps{})
	in := do("cmd.run", "id -g").with("group", group.Name)
	if got, err := m.Call(t.Context(), Minion{}, in.fun, in.args, in.kwargs); err != nil ||
		got != group.Gid {
		t.Errorf("in group %s: %v, %v", group.Name, got, err)
	}
	for _, bad := range []step{in.with("runas", "nosuch-user"),
		do("cmd.run", "id -g").with("group", "nosuch-group")} {
		if got, err := m.Call(t.Context(), Minion{}, bad.fun, bad.args, bad.kwargs); err == nil {
			t.Errorf("%v gave %v", bad.kwargs, got)
		}
	}
}
