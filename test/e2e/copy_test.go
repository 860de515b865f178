package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tree is what a copy of srv/web/tree holds once testApply has added to it.
var tree = map[string]string{"a.txt": "a\n", "new.txt": "new\n", "sub/b.txt": "b\n"}

func checkTree(t *testing.T, who, dir string) {
	t.Helper()
	for path, want := range tree {
		if b, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(b) != want {
			t.Errorf("%s: %s is %q, want %q, %v", who, path, b, want, err)
		}
	}
}

// testCopyFolders copies whole folders, both ways.
func testCopyFolders(t *testing.T, c *Cluster) {
	for _, m := range c.Minions {
		// and the empty folder
		if got := answers(t, c.Masters[0], m.ID, "cp.get_dir", "salt://web/tree",
			filepath.Join(m.Dir, "got")); len(got[m.ID].([]any)) != len(tree)+1 {
			t.Errorf("%s: cp.get_dir %v", m.ID, got)
		}
		checkTree(t, m.ID+": cp.get_dir", filepath.Join(m.Dir, "got/tree"))
		if st, err := os.Stat(filepath.Join(m.Dir, "got/tree/empty")); err != nil || !st.IsDir() {
			t.Errorf("%s: cp.get_dir left the empty folder out: %v", m.ID, err)
		}
	}
	// Without the file of 100 MB, which comes later.
	for _, m := range c.Masters {
		big := filepath.Join(m.Dir, "srv/big.bin")
		if err := os.Rename(big, filepath.Join(m.Dir, "big.bin")); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.Rename(filepath.Join(m.Dir, "big.bin"), big); err != nil {
				t.Error(err)
			}
		}()
	}
	Eventually(t, 60*time.Second, "the large file is gone from the lists", func() error {
		for id, v := range answers(t, c.Masters[1], "*", "cp.list_master") {
			if strings.Contains(fmt.Sprint(v), "big.bin") {
				return fmt.Errorf("%s: %v", id, v)
			}
		}
		return nil
	})
	cached := answers(t, c.Masters[1], "*", "cp.cache_master")
	for _, m := range c.Minions {
		paths, _ := cached[m.ID].([]any)
		have := map[string]bool{}
		for _, p := range paths {
			path := fmt.Sprint(p)
			have[path] = true
			if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
				t.Errorf("%s: cp.cache_master says %q: %v", m.ID, path, err)
			}
		}
		base := filepath.Join(m.Dir, "var/cache/salt/minion/files/base")
		for path := range stateFiles {
			if name, ok := strings.CutPrefix(path, "srv/"); ok && !have[filepath.Join(base, name)] {
				t.Errorf("%s: cp.cache_master lacks %s: %v", m.ID, name, paths)
			}
		}
		checkTree(t, m.ID+": cp.cache_master", filepath.Join(base, "web/tree"))
	}
	for _, m := range c.Minions {
		dir := filepath.Join(m.Dir, "got/tree")
		if got := answers(t, c.Masters[2], m.ID, "cp.push_dir", dir,
			"glob=*.txt"); got[m.ID] != true {
			t.Errorf("%s: cp.push_dir %v", m.ID, got)
		}
		var listed map[string]map[string]any
		if err := c.Masters[0].RunnerJSON(t, &listed, "pushed.list", m.ID); err != nil {
			t.Error(err)
		}
		for path, want := range tree {
			full := strings.TrimPrefix(filepath.Join(dir, path), "/")
			if listed[m.ID][full] == nil {
				t.Errorf("%s: cp.push_dir pushed no %s, but %v", m.ID, full, listed)
			}
			if r := c.Masters[1].Runner(t, "pushed.read", m.ID, full); strings.TrimSuffix(r.Stdout,
				"\n") != strings.TrimSuffix(want, "\n") {
				t.Errorf("%s: pushed %s is %v", m.ID, path, r)
			}
		}
	}
}

// testLinks: file.recurse makes links of links if asked to, and a source may name its environment.
func testLinks(t *testing.T, c *Cluster) {
	got := answers(t, c.Masters[0], "*", "state.sls", "linked,env")
	for _, m := range c.Minions {
		if err := checkApplied(got[m.ID], 2); err != nil {
			t.Errorf("%s: %v", m.ID, err)
		}
		if to, err := os.Readlink(filepath.Join(m.Dir, "linked/b.lnk")); err != nil ||
			to != "a.txt" {
			t.Errorf("%s: the link is %q, %v", m.ID, to, err)
		}
		if b, err := os.ReadFile(filepath.Join(m.Dir, "dev.txt")); err != nil ||
			string(b) != "of dev\n" {
			t.Errorf("%s: dev.txt is %q, %v", m.ID, b, err)
		}
	}
}

// testLargePillar: a pillar of 1 MB and keys of every kind arrive unchanged.
func testLargePillar(t *testing.T, c *Cluster) {
	large := strings.Repeat("0123456789abcdef", 1<<16)
	for _, m := range c.Masters {
		writeBelow(t, m.Dir, "pillar/common.sls",
			[]byte(stateFiles["pillar/common.sls"]+"large: "+large+
				"\nkinds: {true: 'yes', 2: two, null: none, 2.5: half, 'ünï': [[1, [2]], {z: 1, a: 2}]}\n"))
	}
	answers(t, c.Masters[0], "*", "saltutil.refresh_pillar", "wait=True")
	// The minions compute the sum, because they truncate returns above max_event_size.
	want := fmt.Sprintf("map[sum:%x]", sha256.Sum256([]byte(large)))
	for id, v := range answers(t, c.Masters[1], "*", "slsutil.renderer",
		"string=sum: {{ pillar.large | sha256 }}") {
		if fmt.Sprint(v) != want {
			t.Errorf("%s: %v, want %s", id, v, want)
		}
	}
	for _, m := range c.Minions {
		r := c.Masters[2].Salt(t, "--out=raw", m.ID, "pillar.raw", "kinds")
		if want := "{'" + m.ID +
			"': {True: 'yes', 2: 'two', None: 'none', 2.5: 'half', 'ünï': [[1, [2]], {'z': 1, 'a': 2}]}}\n"; r.Stdout != want {
			t.Errorf("%v, want %s", r, want)
		}
	}
	for _, m := range c.Masters {
		writeBelow(t, m.Dir, "pillar/common.sls", []byte(stateFiles["pillar/common.sls"]))
	}
	answers(t, c.Masters[0], "*", "saltutil.refresh_pillar", "wait=True")
}

// testBrokenPillar: a minion whose pillar has errors applies no states, and shows the errors.
func testBrokenPillar(t *testing.T, c *Cluster) {
	for _, m := range c.Masters {
		writeBelow(t, m.Dir, "pillar/new.sls", []byte("{{ nosuch.thing }}\n"))
	}
	for _, m := range c.Minions {
		r := c.Masters[1].Salt(t, "--out=json", "--static", "--timeout=60", m.ID, "state.apply")
		broken := strings.HasPrefix(m.Release, "3008")
		if refused := strings.Contains(r.Stdout, "Pillar failed to render"); refused != broken ||
			refused && !strings.Contains(r.Stdout, "Rendering SLS 'new' failed") {
			t.Errorf("%s: %v", m.ID, r)
		}
	}
	for _, m := range c.Masters {
		writeBelow(t, m.Dir, "pillar/new.sls", []byte(stateFiles["pillar/new.sls"]))
	}
	answers(t, c.Masters[0], "*", "saltutil.refresh_pillar", "wait=True")
}
