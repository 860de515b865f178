package localcache

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clustermaster/serve/event"
	"clustermaster/serve/event/eventtest"
	"clustermaster/store/jobcache"
	"clustermaster/test/logtest"
	"clustermaster/value"
	"clustermaster/wire"
)

// returned is what minions returned, by id.
type returned struct {
	mu sync.Mutex
	by map[string]jobcache.Return
}

func (r *returned) ReadReturns(_ context.Context, _ string, ids []string,
	fn func(string, jobcache.Return) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if ret, there := r.by[id]; there {
			if err := fn(id, ret); err != nil {
				return err
			}
		}
	}
	return nil
}

type world struct {
	c    *Cache
	bus  *event.Bus
	jobs *returned
	log  *logtest.Buffer
	dir  string
}

func open(t *testing.T, keep time.Duration) *world {
	t.Helper()
	w := &world{bus: event.NewBus(0, nil, nil), jobs: &returned{by: map[string]jobcache.Return{}},
		log: new(logtest.Buffer), dir: filepath.Join(t.TempDir(), "jobs")}
	var err error
	w.c, err = New(Options{Dir: w.dir, HashType: "sha256", Keep: keep}, Deps{
		Mesh: eventtest.Alone(w.bus), Jobs: w.jobs, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// arrive makes a return known and tells of it.
func (w *world) arrive(t *testing.T, jid, id string, r jobcache.Return) {
	t.Helper()
	w.jobs.mu.Lock()
	w.jobs.by[id] = r
	w.jobs.mu.Unlock()
	w.bus.Fire("salt/job/"+jid+"/ret/"+id,
		value.Map{{Key: "id", Value: id}, {Key: "return", Value: "VALUE_TRIMMED"}})
}

func (w *world) read(t *testing.T, elem ...string) any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{w.dir}, elem...)...))
	if err != nil {
		return nil
	}
	v, err := value.Unpack(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen within 20 s")
		}
	}
}

func pack(t *testing.T, v any) value.Raw {
	t.Helper()
	b, err := value.Pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	jid = "20261121093513244628"
	// salt.utils.jid.jid_dir, Salt 3008.3
	saltsFolder = "3e/640105d5055ff74d3aa0551c20dbe96b59b10b81d2e04496252145df0b853b"
)

// TestKeepNoCache: the job is there as Salt's has it, and nobody waits for its returns.
func TestKeepNoCache(t *testing.T) {
	t.Parallel()
	w := open(t, time.Hour)
	w.c.Keep(jid, value.Map{{Key: "fun", Value: "test.ping"}}, []string{"web-a"}, true)
	if load, _ := w.read(t, saltsFolder, ".load.p").(value.Map); load.String("fun") != "test.ping" {
		t.Errorf("load: %v", load)
	}
	if info, err := os.Stat(filepath.Join(w.dir, saltsFolder, "nocache")); err != nil ||
		info.Size() > 0 {
		t.Errorf("the mark: %v, %v", info, err)
	}
	if len(w.c.followed) > 0 {
		t.Error("its returns are waited for")
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	w := open(t, time.Hour)
	w.c.Keep(jid, value.Map{{Key: "fun", Value: "test.ping"}, {Key: "key", Value: "secret"},
		{Key: "token", Value: "secret"}}, []string{"web-b", "web-a"}, false)
	rel, err := filepath.Rel(w.dir, w.c.folder(jid))
	if err != nil || rel != saltsFolder {
		t.Errorf("the job lies in %s, Salt looks in %s", rel, saltsFolder)
	}
	load, _ := w.read(t, rel, ".load.p").(value.Map)
	if load.String("fun") != "test.ping" || strings.Contains(string(pack(t, load)), "secret") {
		t.Errorf("load: %v", load)
	}
	w.c.Keep(jid, load, []string{"endtime"}, false) // the next part of a batch
	names, _ := w.read(t, rel, ".minions.p").([]any)
	if !slices.Equal(names, []any{"endtime", "web-a", "web-b"}) {
		t.Errorf("minions: %v", names)
	}

	w.arrive(t, jid, "web-a", jobcache.Return{Return: pack(t, []any{true, []byte{0xff}}),
		Retcode: pack(t, int64(3)), Success: pack(t, false), Out: "nested"})
	eventually(t, func() bool { return w.read(t, rel, "web-a", "return.p") != nil })
	ret, _ := w.read(t, rel, "web-a", "return.p").(value.Map)
	code, _ := ret.Get("retcode")
	if val, _ := ret.Get("return"); code != int64(3) ||
		!slices.Equal(pack(t, val), pack(t, []any{true, []byte{0xff}})) {
		t.Errorf("return: %v", ret)
	}
	if out := w.read(t, rel, "web-a", "out.p"); out != "nested" {
		t.Errorf("out: %v", out)
	}
	w.arrive(t, jid, "../../x", jobcache.Return{Return: pack(t, true)})
	w.arrive(t, jid, "endtime", jobcache.Return{Return: pack(t, true)})
	w.arrive(t, jid, "web-a", jobcache.Return{Return: pack(t, "again")})
	w.arrive(t, jid, "web-b", jobcache.Return{Return: pack(t, true)})
	eventually(t, func() bool { return w.read(t, rel, "web-b", "return.p") != nil })
	if again, _ := w.read(t, rel, "web-a",
		"return.p").(value.Map); again.String("return") == "again" {
		t.Error("a second return replaced the first one")
	}
	eventually(t, func() bool { // nothing more is waited for
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		return len(w.c.followed[jid].waiting) == 0
	})
	if strings.Count(w.log.String(), "level=WARN") != 2 ||
		strings.Count(w.log.String(), "has no folder") != 2 {
		t.Errorf("log: %s", w.log)
	}
	if left, _ := filepath.Glob(filepath.Join(w.dir, "*", "*", ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFollowersEnd(t *testing.T) {
	t.Parallel()
	w := open(t, 0)
	for i := range maxFollowed + 1 {
		w.c.Keep(wire.JID(time.Unix(int64(i), 0)), value.Map{{Key: "fun", Value: "x"}},
			[]string{"web-a"}, false)
	}
	if !strings.Contains(w.log.String(), "too many jobs at a time") ||
		strings.Count(w.log.String(), "level=WARN") != 1 {
		t.Errorf("log: %s", w.log)
	}
	if jobs, _ := filepath.Glob(filepath.Join(w.dir, "*", "*",
		".load.p")); len(jobs) != maxFollowed+1 {
		t.Errorf("%d jobs are on disk", len(jobs))
	}
}

func TestClean(t *testing.T) {
	t.Parallel()
	w := open(t, time.Hour)
	w.c.Keep("1", value.Map{}, nil, false)
	w.c.Keep("2", value.Map{}, nil, false)
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(w.c.folder("1"), "jid"), old, old); err != nil {
		t.Fatal(err)
	}
	w.c.clean()
	if _, err := os.Stat(filepath.Dir(w.c.folder("1"))); err == nil {
		t.Error("a job of before keep_jobs_seconds is still there")
	}
	if _, err := os.Stat(filepath.Join(w.c.folder("2"), ".load.p")); err != nil {
		t.Error(err)
	}
}

func TestHashTypes(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{HashType: "crc32"}, Deps{}); err == nil {
		t.Error("a hash that Salt has not")
	}
}
