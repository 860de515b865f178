package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSyndic: below our master of masters, a real salt-syndic has a real Salt master with a minion.
// Jobs go down to the minion, and its returns come up.
func TestSyndic(t *testing.T) {
	t.Parallel()
	// the syndic of 3008.3 builds the requests that should bring returns up, but never sends them
	const release = "3006.28"
	upper := NewCluster(t, ClusterOptions{Masters: 1, Plain: true,
		Extra: "order_masters: True\nsyndics: ['syndic-*']\nsyndic_wait: 6\n" +
			"timeout: 20\nauto_accept: True\n"})
	lower := NewCluster(t, ClusterOptions{Masters: 1, Plain: true, Programs: Theirs(t, release),
		Extra: fewWorkers + "auto_accept: True\nsyndic_master: " + upper.Masters[0].Addr + "\n"})
	top, below := upper.Masters[0], lower.Masters[0]
	top.Run(t)
	below.Run(t)
	Eventually(t, 30*time.Second, "our master serves", top.Ready)
	minion := NewMinion(t, lower.Dir, MinionOptions{ID: "below-1", Release: release,
		Master: below.Addr, Extra: quick})
	minion.Run(t)

	dir := filepath.Join(lower.Dir, "syndic")
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o755); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf("id: syndic-1\nroot_dir: %[1]s\npki_dir: %[1]s/pki\nsock_dir: %[1]s/run\n%[2]s", dir, quick)
	if err := os.WriteFile(filepath.Join(below.ConfDir, "minion"), []byte(conf),
		0o644); err != nil {
		t.Fatal(err)
	}
	syndic := Process{Name: "salt-syndic", Output: filepath.Join(dir, "output.log")}
	ShowOnFailure(t, syndic.Output)
	syndic.Start(t, filepath.Join(Venvs(t), "salt-"+release, "bin", "salt-syndic"), "-c",
		below.ConfDir, "-l", "debug")

	Eventually(t, 60*time.Second, "the syndic's key is accepted", func() error {
		keys, err := top.Keys(t)
		if err == nil && !slices.Contains(keys["minions"], "syndic-1") {
			err = fmt.Errorf("keys %v", keys)
		}
		return err
	})
	Eventually(t, 90*time.Second, "the minion below answers", func() error {
		r := top.Salt(t, "-t", "5", "--out=txt", "*", "test.ping")
		if !strings.Contains(r.Stdout, "below-1: True") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})

	// The syndic itself returns nothing, which is no failure.
	if r := top.Salt(t, "-t", "1", "--out=txt", "*", "test.ping"); r.Code != 0 ||
		r.Stdout != "below-1: True\n" {
		t.Errorf("all: %v", r)
	}
	// No minion of ours has the name: the syndic says who is below it.
	if r := top.Salt(t, "--out=txt", "-L", "below-1", "test.ping"); r.Code != 0 ||
		r.Stdout != "below-1: True\n" {
		t.Errorf("by name: %v", r)
	}
	for _, args := range [][]string{{"salt.execute", "below-1", "test.ping"},
		{"manage.up", "tgt=below-1"}, {"state.orchestrate_single", "fun=salt.function",
			"name=test.ping", "tgt=below-1"}} {
		if r := top.Runner(t, args...); r.Code != 0 || !strings.Contains(r.Stdout, "below-1") {
			t.Errorf("%q: %v", args, r)
		}
	}
	copied := filepath.Join(lower.Dir, "copied")
	r := Command(t, filepath.Join(filepath.Dir(Ours(t).Salt), "salt-cp"), "-c", top.ConfDir, "below-1",
		filepath.Join(top.ConfDir, "master"), copied)
	if b, err := os.ReadFile(copied); err != nil || string(b) != top.Config(t) || r.Code != 0 {
		t.Errorf("salt-cp: %v, %v", r, err)
	}
	// Another syndic may name more minions until syndic_wait is over.
	began := time.Now()
	if r := top.Salt(t, "--out=txt", "below-1", "test.ping"); time.Since(began) < 6*time.Second {
		t.Errorf("syndic_wait of 6 s: %v", r)
	}
}
