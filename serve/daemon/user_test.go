package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const becomeEnv = "CLUSTERMASTER_TEST_BECOME"

// TestBecome: a master that root started as another user has that user's ids and home, and none of
// root's groups. It drops them in a process of its own.
func TestBecome(t *testing.T) {
	if name := os.Getenv(becomeEnv); name != "" {
		if err := syscall.Setgroups([]int{0, 4, 27}); err != nil { // as root may have had
			t.Fatal(err)
		}
		id, err := lookupUser(name)
		if err == nil {
			err = id.become()
		}
		groups, _ := syscall.Getgroups()
		fmt.Println("became", os.Getuid(), os.Getgid(), groups, os.Getenv("HOME"), err)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("only root becomes another user")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestBecome$")
	cmd.Env = append(os.Environ(), becomeEnv+"=nobody", "HOME=/root")
	out, err := cmd.Output()
	want := fmt.Sprintf("became %s %s [%s] %s <nil>", u.Uid, u.Gid, u.Gid, u.HomeDir)
	if err != nil || !slices.Contains(strings.Split(string(out), "\n"), want) {
		t.Errorf("%v\n%swant %s", err, out, want)
	}
}
