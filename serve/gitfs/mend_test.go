package gitfs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// TestFlippedBits flips bits in the objects of a mirror, loose ones and those of a pack. Every file
// is then served right or not at all, and is right once the mirror was fetched anew.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"loose", "pack"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r, seed := newRepo(t), rand.Uint64()
			chance := rand.New(rand.NewPCG(seed, 1))
			t.Logf("seed %d", seed)
			files := map[string]string{"a": "text of a\n", "d/b": strings.Repeat("more text\n", 300), "d/e/c": "c"}
			r.write(files)
			r.commit("one")
			s, _ := open(t, Options{}, "file://"+r.dir)
			s.all(t)
			damages := 0
			for i := range 40 {
				m := s.mirrors[s.keys[0]]
				if kind == "pack" {
					if _, err := m.run(t.Context(), nil, "repack", "-adq"); err != nil {
						t.Fatal(err)
					}
				}
				s.Close()
				what := flip(t, chance, filepath.Join(m.dir, "objects"))
				s = s.reopened(t, s.with) // it has cached nothing
				m = s.mirrors[s.keys[0]]
				for name, want := range files {
					got, err := s.text(t.Context(), name)
					if err != nil && !strings.Contains(err.Error(), " is damaged: ") ||
						err == nil && got != want {
						t.Errorf("flip %d, %s: %s is %.40q, %v", i, what, name, got, err)
					}
				}
				if m.broken.Swap(true) {
					damages++
				}
				s.mendAll(t, time.Now())
				for name, want := range files {
					if got, err := s.text(t.Context(), name); got != want || err != nil {
						t.Fatalf("flip %d, %s, fetched anew: %s is %.40q, %v", i, what, name, got, err)
					}
				}
			}
			if damages < 10 {
				t.Errorf("%d flips were noticed", damages)
			}
		})
	}
}

// flip flips one bit of one file with objects.
func flip(t *testing.T, chance *rand.Rand, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "??", "*"))
	packs, err2 := filepath.Glob(filepath.Join(dir, "pack", "*.pack"))
	if found = append(found, packs...); err != nil || err2 != nil || len(found) == 0 {
		t.Fatal(found, err, err2)
	}
	file := found[chance.IntN(len(found))]
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := chance.IntN(len(b))
	b[at] ^= 1 << chance.IntN(8)
	if err := errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, b, 0o600)); err != nil {
		t.Fatal(err)
	}
	return filepath.Base(file)
}

// text reads a file of the environment base.
func (s *Store) text(ctx context.Context, name string) (string, error) {
	f, found, err := s.Find(ctx, name, "base")
	if err != nil || !found {
		return "", err
	}
	b, err := f.Whole(ctx, 1<<20)
	return string(b), err
}

// TestMendFromOthers damages the mirror of a master that does not lead, and takes the remote away:
// it fetches everything anew from the other master, and goes on if the first attempt fails.
func TestMendFromOthers(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.write(map[string]string{"d/file": "text"})
	first := r.commit("one")
	lead, _ := open(t, Options{}, "file://"+r.dir)
	lead.all(t)
	others := &leader{conn: connection(t, lead)}
	dir := filepath.Join(t.TempDir(), "git")
	s, _ := follow(t, lead, others, dir)
	s.catchUpAll(t)
	if got := s.read(t, "d/file", "base"); got != "text" {
		t.Fatalf("at first %q", got)
	}
	r.write(map[string]string{"d/file": "new text"})
	r.commit("two")
	lead.all(t)
	s.catchUpAll(t)
	m := s.mirrors[s.keys[0]]
	if err := os.Rename(r.dir, r.dir+".away"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	packs, err := filepath.Glob(filepath.Join(m.dir, "objects", "pack", "*.pack"))
	if err != nil || len(packs) < 2 {
		t.Fatal(packs, err)
	}
	for _, pack := range packs {
		b, err := os.ReadFile(pack)
		if err != nil {
			t.Fatal(err)
		}
		for i := 12; i < len(b); i += 7 {
			b[i] ^= 1
		}
		if err := errors.Join(os.Chmod(pack, 0o600), os.WriteFile(pack, b, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s, log := follow(t, lead, others, dir)
	m = s.mirrors[s.keys[0]]
	if got, err := s.text(t.Context(), "d/file"); err == nil || !m.broken.Load() {
		t.Fatalf("damaged: %q, %v, noticed %v", got, err, m.broken.Load())
	}
	others.gone = true
	now := time.Now()
	s.mendAll(t, now)
	if !strings.Contains(log.String(), "can't be fetched anew") || !m.broken.Load() {
		t.Errorf("without the other master: %s", log.String())
	}
	others.gone = false
	s.mendAll(t, now.Add(mendAgain/2))
	if !m.broken.Load() {
		t.Error("it is tried again at once")
	}
	s.mendAll(t, now.Add(mendAgain))
	if got := s.read(t, "d/file", "base"); got != "new text" || m.broken.Load() {
		t.Errorf("fetched anew: %q\n%s", got, log.String())
	}
	if lacking := m.lacks([]string{first}); len(lacking) > 0 {
		t.Error("the former commit is no longer kept")
	}
	if left, err := os.ReadDir(filepath.Join(dir, "mending")); len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDamagedSender has a master that lacks an object of what it sends to another one: it notices,
// and sends everything once it has fetched its mirror anew.
func TestDamagedSender(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]string{"file": "HEAD:d/file", "folder": "HEAD:d"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			r.write(map[string]string{"d/file": "text"})
			r.commit("one")
			lead, _ := open(t, Options{}, "file://"+r.dir)
			lead.all(t)
			m, id := lead.mirrors[lead.keys[0]], r.git("rev-parse", object)
			if err := os.Remove(filepath.Join(m.dir, "objects", id[:2], id[2:])); err != nil {
				t.Fatal(err)
			}
			s, log := follow(t, lead, &leader{conn: connection(t, lead)}, filepath.Join(t.TempDir(), "git"))
			s.catchUpAll(t)
			if !m.broken.Load() || !strings.Contains(log.String(), m.dir+" is damaged: ") {
				t.Errorf("noticed: %v\n%s", m.broken.Load(), log)
			}
			lead.mendAll(t, time.Now())
			s.catchUpAll(t)
			if got := s.read(t, "d/file", "base"); got != "text" {
				t.Errorf("the other master serves %q\n%s", got, log)
			}
		})
	}
}

// follow opens the store of a master that does not lead, in a folder.
func follow(t *testing.T, lead *Store, others *leader, dir string) (*Store, *bytes.Buffer) {
	t.Helper()
	opts := lead.opts
	opts.Dir = dir
	log := new(bytes.Buffer)
	s, problems, err := New(opts, Agreed{follower{lead.with.(Agreed).Cluster}}, others,
		slog.New(slog.NewTextHandler(log, nil)), nil)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	t.Cleanup(s.Close)
	return s, log
}

// follower sees the replicated state as a master does that does not lead.
type follower struct{ Cluster }

func (follower) IsLeader() bool { return false }

// leader is the only other master, m1/1.
type leader struct {
	conn grpc.ClientConnInterface
	gone bool
}

func (*leader) Self() string                                    { return "m2/1" }
func (*leader) Members() []string                               { return []string{"m1/1", "m2/1"} }
func (l *leader) Alive(node string) bool                        { return !l.gone }
func (l *leader) Conn(string) (grpc.ClientConnInterface, error) { return l.conn, nil }

// connection serves a store to other masters, and connects to it.
func connection(t *testing.T, s *Store) *grpc.ClientConn {
	t.Helper()
	l, server := bufconn.Listen(1<<20), grpc.NewServer()
	s.RegisterRPC(server)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///leader",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestAlteredObject puts the bytes of one object in the place of another, as a failing disk may:
// git itself does not notice. Neither the wrong bytes are served, nor does a folder seem to be
// absent.
func TestAlteredObject(t *testing.T) {
	t.Parallel()
	for name, swap := range map[string][2]string{
		"files":  {"HEAD:d/file", "HEAD:top"},
		"folder": {"HEAD:d", "HEAD:top"},
		"root":   {"HEAD^{tree}", "HEAD:d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			r.write(map[string]string{"d/file": "text", "top": "other"})
			r.commit("one")
			s, _ := open(t, Options{}, "file://"+r.dir)
			s.all(t)
			m := s.mirrors[s.keys[0]]
			path := func(object string) string {
				id := r.git("rev-parse", object)
				return filepath.Join(m.dir, "objects", id[:2], id[2:])
			}
			if err := errors.Join(os.Remove(path(swap[0])), os.Link(path(swap[1]), path(swap[0]))); err != nil {
				t.Fatal(err)
			}
			got, err := s.text(t.Context(), "d/file")
			if err == nil || !strings.Contains(err.Error(), r.git("rev-parse", swap[0])+" is corrupt") {
				t.Errorf("got %q, %v", got, err)
			}
			s.mendAll(t, time.Now())
			if got := s.read(t, "d/file", "base"); got != "text" {
				t.Errorf("fetched anew: %q", got)
			}
		})
	}
}

// TestRemovedFolders removes what an administrator may take for a cache, while the master runs.
func TestRemovedFolders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mirrors", "."} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			r.write(map[string]string{"d/file": "text", "large": strings.Repeat("0123456789abcdef", 1<<16)})
			r.commit("one")
			s, _ := open(t, Options{}, "file://"+r.dir)
			s.all(t)
			if err := os.RemoveAll(filepath.Join(s.opts.Dir, name)); err != nil {
				t.Fatal(err)
			}
			if got, err := s.text(t.Context(), "d/file"); err == nil {
				t.Errorf("once it is removed: %q", got)
			}
			s.mendAll(t, time.Now())
			if got := s.read(t, "d/file", "base"); got != "text" {
				t.Errorf("fetched anew: %q", got)
			}
			if got := s.read(t, "large", "base"); len(got) != 1<<20 {
				t.Errorf("fetched anew, the large file has %d bytes", len(got))
			}
			for _, o := range s.all(t) {
				if o.Err != nil {
					t.Error(o.Err)
				}
			}
			if _, err := os.Stat(filepath.Join(s.opts.Dir, "askpass")); err != nil {
				t.Error(err)
			}
		})
	}
}
