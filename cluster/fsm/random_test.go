package fsm_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/cluster/fsm"
	"clustermaster/cluster/level"
)

var at = time.Date(2026, 11, 21, 9, 32, 30, 576440000, time.UTC)

func member(n int) fsm.Member {
	id := fmt.Sprintf("m%d", n)
	return fsm.Member{
		Node: fsm.NodeName(id, fmt.Sprintf("%016d", n)), ID: id,
		Incarnation: fmt.Sprintf("%016d", n),
		Addr:        fmt.Sprintf("127.0.0.%d:4520", n), SPKI: [32]byte{byte(n)}, Version: "test",
	}
}

func found() *fsm.Found {
	return &fsm.Found{
		Cluster: fsm.Cluster{UUID: strings.Repeat("a", 32), ClusterID: "c", ClusterKey: "PEM",
			JoinKey: []byte("k"), Partitions: 256},
		Member: member(1), AES: "aes-1", Session: []byte("session-1"), At: at,
	}
}

// founded returns a state with one member.
func founded(t testing.TB) *fsm.State {
	t.Helper()
	s := fsm.New()
	if r, _ := s.Apply(1, found()); r.Refused != "" || !r.Changed {
		t.Fatalf("found: got %+v", r)
	}
	return s
}

func snapshot(t testing.TB, s *fsm.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// through sends a command through its log form.
func through(t testing.TB, c fsm.Command) fsm.Command {
	t.Helper()
	b, err := fsm.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	out, err := fsm.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func randomCommand(r *rand.Rand) fsm.Command {
	id := fmt.Sprintf("minion%d", r.IntN(12))
	pub := fmt.Sprintf("PUB%d", r.IntN(3))
	when := at.Add(time.Duration(r.IntN(1e6)) * time.Microsecond)
	switch r.IntN(14) {
	case 0:
		return found()
	case 1:
		m := member(r.IntN(4) + 1)
		if r.IntN(3) == 0 {
			m.Incarnation = "other"
			m.Node = fsm.NodeName(m.ID, m.Incarnation)
		}
		return &fsm.PutMember{Member: m, Replace: member(r.IntN(4) + 1).Node, At: when}
	case 2:
		return &fsm.RemoveMember{Node: member(r.IntN(4) + 1).Node, Bar: r.IntN(2) == 0, At: when}
	case 3:
		return &fsm.AllowMember{ID: member(r.IntN(4) + 1).ID}
	case 4:
		return &fsm.StageAES{Key: pub, At: when}
	case 5:
		return &fsm.ActivateAES{Epoch: uint64(r.IntN(6)), At: when}
	case 6:
		return &fsm.StageSession{Secret: []byte(pub), At: when}
	case 7:
		return &fsm.ActivateSession{Epoch: uint64(r.IntN(6)), At: when}
	case 8:
		return &fsm.SetRing{Epoch: uint64(r.IntN(5)),
			Members: []string{member(1).Node, member(2).Node}, At: when}
	case 9:
		return &fsm.ImportKeys{Keys: []fsm.Key{{ID: id, State: fsm.KeyState(r.IntN(6)), Pub: pub}},
			Overwrite: r.IntN(2) == 0, At: when}
	case 10, 11:
		return &fsm.ChangeKeys{Action: fsm.KeyAction(r.IntN(4)), IDs: []string{id, "minion1", id},
			From: fsm.KeyStates(r.IntN(64)), At: when}
	default:
		return &fsm.OfferKey{
			ID: id, Pub: pub, Open: r.IntN(8) == 0, Auto: fsm.Auto(r.IntN(3)),
			MaxPending: r.IntN(8), MaxPerSource: r.IntN(5),
			Source: fmt.Sprintf("10.0.0.%d", r.IntN(3)), At: when,
		}
	}
}

// randomGitCommand changes one of two mirrors; sometimes it leaves one without refs or pins.
func randomGitCommand(r *rand.Rand, s *fsm.State) fsm.Command {
	key := strings.Repeat(string("ab"[r.IntN(2)]), 32)
	when := at.Add(time.Duration(r.IntN(1e6)) * time.Microsecond)
	name, commit := fmt.Sprint("ref", r.IntN(2)), strings.Repeat(string("cd"[r.IntN(2)]), 40)
	if r.IntN(2) == 0 {
		return &fsm.ChangeGit{Action: fsm.GitAction(r.IntN(5)), Key: key, Env: name, Commit: commit, By: "root",
			At: when}
	}
	c := &fsm.SetGitRefs{Key: key, Seq: 1, At: when}
	for _, m := range s.GitMirrors() {
		if m.Key == key {
			c.Seq = m.Seq + 1
		}
	}
	if r.IntN(3) == 0 {
		c.Drop = []string{"ref0", "ref1"}
	} else {
		c.Put = []fsm.GitRef{{Name: name, Commit: commit}}
	}
	return c
}

// TestEqualCommandsGiveEqualBytes applies random commands to A, moves a snapshot taken at a random
// point to B, gives the rest to both and compares results and bytes. C gets the commands without
// their log form.
func TestEqualCommandsGiveEqualBytes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, b, c := fsm.New(), fsm.New(), fsm.New()
		const n = 200
		cut := r.IntN(n)
		for i := range n {
			cmd := randomCommand(r)
			if i == 0 {
				cmd = found()
			} else if i == 1 {
				cmd = &fsm.SetLevel{Level: level.Supported()}
			} else if which := r.IntN(8); which == 0 {
				cmd = randomTokenCommand(r)
			} else if which == 1 {
				cmd = randomGitCommand(r, a)
			}
			index := uint64(i*2 + 1)
			ra, _ := a.Apply(index, through(t, cmd))
			rc, _ := c.Apply(index, cmd)
			if i > cut {
				rb, _ := b.Apply(index, through(t, cmd))
				if got, want := fmt.Sprint(rb), fmt.Sprint(ra); got != want {
					t.Fatalf("seed %d, command %d %T: results differ\ngot  %s\nwant %s", seed, i,
						cmd, got, want)
				}
			}
			if got, want := fmt.Sprint(rc), fmt.Sprint(ra); got != want {
				t.Fatalf("seed %d, command %d %T: results differ without log\ngot  %s\nwant %s",
					seed, i, cmd, got, want)
			}
			if i == cut {
				if err := b.Restore(bytes.NewReader(snapshot(t, a))); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		want := snapshot(t, a)
		if got := snapshot(t, b); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: snapshot after restore differs", seed)
		}
		if got := snapshot(t, c); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: snapshot without log differs", seed)
		}
		if a.Unvetted() != b.Unvetted() {
			t.Fatalf("seed %d: unvetted %d and %d", seed, a.Unvetted(), b.Unvetted())
		}
		for _, s := range []*fsm.State{a, b} {
			checkSources(t, s)
		}
	}
}

// checkSources compares the number of unvetted keys by source with the keys.
func checkSources(t *testing.T, s *fsm.State) {
	t.Helper()
	counts := map[string]int{}
	keys, _ := s.Keys()
	for _, k := range keys {
		if k.Unvetted {
			counts[k.Source]++
		}
	}
	for source, n := range counts {
		if source != "" && (s.Full(0, n, source) != fsm.BoundSource ||
			s.Full(0, n+1, source) != "") {
			t.Errorf("%d keys of %q are counted otherwise", n, source)
		}
	}
	if s.Full(0, 1, "nobody") != "" {
		t.Error("a key of nobody is counted")
	}
}

func TestSnapshotIsNotChangedByLaterCommands(t *testing.T) {
	t.Parallel()
	s := founded(t)
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 300 {
		s.Apply(uint64(i+2), randomCommand(r))
	}
	sn := s.Snapshot()
	want := snapshot(t, s)
	for i := range 300 {
		s.Apply(uint64(i+400), randomCommand(r))
	}
	var got bytes.Buffer
	if _, err := sn.WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("a snapshot changed after it was taken")
	}
}

// TestGoldenSnapshot pins the snapshot form of version 1: a new version must go on reading it.
func TestGoldenSnapshot(t *testing.T) {
	t.Parallel()
	s := fsm.New()
	r := rand.New(rand.NewPCG(42, 42))
	s.Apply(1, found())
	for i := range 120 {
		s.Apply(uint64(i+2), randomCommand(r))
	}
	got := snapshot(t, s)
	name := filepath.Join("testdata", "snapshot-1.bin")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the snapshot differs from testdata/snapshot-1.bin: log and snapshots of released masters would not be read alike")
	}
	back := fsm.New()
	if err := back.Restore(bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshot(t, back), want) {
		t.Error("restoring the golden snapshot and writing it again gives other bytes")
	}
}

// TestPure keeps clock, randomness and the system out: masters would drift apart.
func TestPure(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}`, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, banned := range []string{"math/rand", "math/rand/v2", "crypto/rand", "os", "net", "log",
		"log/slog", "runtime", "context"} {
		if slices.Contains(strings.Fields(string(out)), banned) {
			t.Errorf("package fsm imports %s: the state may depend only on the log", banned)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, banned := range []string{"time.Now", "time.Since", "time.Local", "go func"} {
			if bytes.Contains(src, []byte(banned)) {
				t.Errorf("%s uses %s", name, banned)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 40 {
		b, err := fsm.Encode(randomCommand(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for range 8 {
		b, err := fsm.Encode(randomTokenCommand(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{1, 0x7f, 0x80})
	wrapped, err := fsm.Encode(once(f, 1, found()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wrapped)
	parts, end := backedUp(f).Split("token", at, 4000)
	for _, c := range append([]fsm.Command{parts[0], parts[len(parts)-1], end, userKeys()},
		reactorsAndRuns()...) {
		b, err := fsm.Encode(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := fsm.Decode(b)
		if err != nil {
			if c != nil {
				t.Fatal("a command beside an error")
			}
			return
		}
		s := founded(t)
		s.Apply(2, c)
		again := through(t, c)
		other := founded(t)
		other.Apply(2, again)
		if !bytes.Equal(snapshot(t, s), snapshot(t, other)) {
			t.Fatal("decode(encode(x)) acts differently from x")
		}
	})
}

func FuzzRestore(f *testing.F) {
	s := fsm.New()
	r := rand.New(rand.NewPCG(42, 42))
	s.Apply(1, found())
	for i := range 60 {
		s.Apply(uint64(i+2), randomCommand(r))
	}
	for i := range 20 {
		s.Apply(uint64(i+62), randomTokenCommand(r))
	}
	f.Add(snapshot(f, s))
	parts, _ := backedUp(f).Split("token", at, 4000)
	s.Apply(100, parts[0])
	for i, c := range append(reactorsAndRuns(), userKeys()) {
		s.Apply(uint64(101+i), c)
	}
	f.Add(snapshot(f, s))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := founded(t)
		before := snapshot(t, s)
		if err := s.Restore(bytes.NewReader(b)); err != nil &&
			!bytes.Equal(snapshot(t, s), before) {
			t.Fatal("an error, and yet the state changed")
		}
	})
}
