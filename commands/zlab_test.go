package commands

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestLab(t *testing.T) {
	p := startPair(t)
	os.WriteFile("/tmp/hcmd/lab.env", []byte(fmt.Sprintf("T=%s\nO=%s\nTA=%s\nOA=%s\n", p.theirs.ConfDir, p.ours.ConfDir, p.theirs.Addr, p.ours.Addr)), 0o644)
	p.offer(t, 0, "new-1", "new-2", "new-3", "new-4", "rej-1", "rej-2", "den-1")
	for _, s := range []*side{p.theirs, p.ours} {
		s.must(t, "salt-key", "-r", "rej-*", "-y")
		s.must(t, "salt-key", "-a", "den-1", "-y")
	}
	p.offer(t, 1, "den-1", "web-a")
	for {
		if b, err := os.ReadFile("/tmp/hcmd/offer"); err == nil {
			os.Remove("/tmp/hcmd/offer")
			p.offer(t, 0, strings.Fields(string(b))...)
		}
		if _, err := os.Stat("/tmp/hcmd/stop"); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
}
