package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const becomeEnv = "CLUSTERMASTER_TEST_BECOME"

// TestBecome: a master that root started as another user has that user's ids, groups and home,
// and none of root's groups. It drops them in a process of its own, which has another /etc/group.
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
	if os.Getuid() != 0 || exec.Command("unshare", "--mount", "true").Run() != nil {
		t.Skip("only root becomes another user")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	groups := filepath.Join(t.TempDir(), "group")
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file string
		want []int // in the kernel's order
	}{
		{"root:x:0:\nothers:x:31:root,nobodyelse\n", []int{gid}},
		{"root:x:0:\npki:x:31:nobody\nothers:x:32:root\nroots:x:33:root,nobody\n",
			[]int{31, 33, gid}},
	} {
		if err := os.WriteFile(groups, []byte(tt.file), 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("unshare", "--mount", "sh", "-c",
			`mount --bind "$1" /etc/group && shift && exec "$@"`, "sh", groups,
			os.Args[0], "-test.run=TestBecome$")
		cmd.Env = append(os.Environ(), becomeEnv+"=nobody", "HOME=/root")
		out, err := cmd.Output()
		want := fmt.Sprintf("became %s %s %v %s <nil>", u.Uid, u.Gid, tt.want, u.HomeDir)
		if err != nil || !slices.Contains(strings.Split(string(out), "\n"), want) {
			t.Errorf("%v\n%swant %s", err, out, want)
		}
	}
}
