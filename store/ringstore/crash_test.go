package ringstore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"clustermaster/hashring"

	"google.golang.org/grpc"
)

// alone is a cluster of one.
type alone struct{ ring *hashring.Ring }

func (a alone) Self() string         { return "m1/a" }
func (a alone) Ring() *hashring.Ring { return a.ring }
func (a alone) Conn(node string) (grpc.ClientConnInterface, error) {
	return nil, fmt.Errorf("no way to %s", node)
}
func (a alone) Alive(string) bool     { return false }
func (a alone) Members() []string     { return []string{"m1/a"} }
func (a alone) QuorumNeedsSelf() bool { return true }
func (a alone) Disowned() bool        { return false }

func newAlone() alone { return alone{hashring.New([]string{"m1/a"}, 256, 3, 1)} }

const crashDir = "RINGSTORE_CRASH_TEST_DIR"

// TestMain turns the test binary into the child of the crash test.
func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		crashChild(dir)
		return
	}
	os.Exit(m.Run())
}

// crashChild writes as fast as it can from several goroutines and prints each key once it is
// acknowledged.
func crashChild(dir string) {
	s, err := Open(dir, newAlone(), Options{}, nil, nil)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	go s.Run(context.Background())
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; ; i++ {
				place := fmt.Sprintf("job%d-%d", w, i)
				_, err := s.Write(context.Background(), place,
					Put{Space: SpaceJobHeads, Name: "load", Value: []byte(place),
						Expires: time.Now().Add(time.Hour)},
					Put{Space: SpaceJobs, Name: "r/web1", Value: []byte(place),
						Expires: time.Now().Add(time.Hour), First: true})
				if err != nil {
					return
				}
				mu.Lock()
				fmt.Println("acked", place)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
}

// A process that is killed at any moment has everything on disk that it acknowledged.
func TestKilledProcessKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for round := range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acked []string
		enough := 1000 * (round + 1)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			word, place, ok := strings.Cut(lines.Text(), " ")
			if !ok || word != "acked" {
				t.Fatalf("child says %q", lines.Text())
			}
			if acked = append(acked, place); len(acked) == enough {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		err = cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); len(acked) < enough || !ok ||
			status.Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended with %v after %d acknowledgements:\n%s", err, len(acked),
				errs.String())
		}
		s, err := Open(dir, newAlone(), Options{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		for _, place := range acked {
			for _, k := range []Key{{Space: SpaceJobHeads, Place: place, Name: "load"},
				{Space: SpaceJobs, Place: place, Name: "r/web1"}} {
				if got, found, err := s.Get(ctx, k); err != nil || !found ||
					string(got.Value) != place {
					t.Fatalf("round %d: %v was acknowledged and is %q (found %v, %v)", round, k,
						got.Value, found, err)
				}
			}
		}
		seen := 0
		if _, err := s.Scan(ctx, SpaceJobHeads, "",
			func(Record) error { seen++; return nil }); err != nil || seen < len(acked) {
			t.Errorf("scan after the kill: %d records of %d, %v", seen, len(acked), err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAfterCloseNothingHangs(t *testing.T) {
	t.Parallel()
	s, err := Open(t.TempDir(), newAlone(), Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), Key{Space: SpaceJobs, Place: "p", Name: "n"}, nil,
		time.Time{}); err == nil {
		t.Error("a closed store takes a record")
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(dir, newAlone(), Options{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.disk.SetNote(t.Context(), "format", []byte("99")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(dir, newAlone(), Options{}, nil, nil); err == nil ||
		!strings.Contains(err.Error(), `format "99"`) {
		t.Errorf("open of another format: %v", err)
	}
}
