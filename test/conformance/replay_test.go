package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/wire"
)

// recorded is a master whose publications an attacker records and sends again.
var recorded = variant{name: "recorded", options: "autosign_file: DIR/autosign.conf\n",
	files: map[string]string{"autosign.conf": "ok-*\n"}}

// TestReplay sends recorded publications to real minions again, as docs/security.md describes: the
// memory of job ids and a new AES key keep a minion from running them twice.
func TestReplay(t *testing.T) {
	t.Parallel()
	e2e.Venvs(t)
	s := newSuite(t)
	m := s.master(t, ours, recorded)
	releases := []string{reference}
	if long() {
		releases = e2e.Releases
	}
	for i, release := range releases {
		t.Run(release, func(t *testing.T) { testReplay(t, m, release, i+1) })
	}
}

func testReplay(t *testing.T, m *subject, release string, n int) {
	const remembered = 3
	dir := e2e.Folder(t)
	r := newRelay(t, m.base.Master(110+n), m.Addr)
	minion := &member{relay: r, Minion: e2e.NewMinion(t, dir, e2e.MinionOptions{
		ID: id("ok-replay", release), Release: release, Master: r.addr,
		Extra: quick + fmt.Sprintf("sign_pub_messages: True\nminion_jid_queue_hwm: %d\n",
			remembered),
	})}
	minion.Run(t)
	ids := []string{minion.ID}
	e2e.Eventually(t, 90*time.Second, minion.ID+" answers",
		func() error { return pinged(t, m, ids) })

	spy := m.signIn(t, id("ok-spy", release), 3) // any minion can read all publications
	listener := subscribe(t, m.Addr, "")
	file := filepath.Join(dir, "ran")
	if _, res := call(t, m, ids, "cmd.run", "echo once >> "+file); res.Code != 0 {
		t.Fatal(res)
	}
	var publication []byte
	for fun := ""; fun != "cmd.run"; {
		publication = listener.next(t, 10*time.Second)[0]
		load, err := wire.NewPubReader(wire.NewCrypticle(spy.got.AES),
			nil).OpenPublication(publication)
		if err != nil {
			t.Fatal(err)
		}
		fun = load.String("fun")
	}
	ran := func() int {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "once\n")
	}
	// The minion takes one publication after the other: once it has answered one, it has seen those
	// before.
	again := func() {
		t.Helper()
		if err := r.inject(e2e.PublishPort, publication); err != nil {
			t.Fatal(err)
		}
	}
	ping := func(times int) {
		t.Helper()
		for range times {
			if err := pinged(t, m, ids); err != nil {
				t.Fatal(err)
			}
		}
	}

	again()
	ping(1)
	if n := ran(); n != 1 {
		t.Errorf("it ran %d times, although the minion knows the job id", n)
	}
	ping(remembered)
	again()
	e2e.Eventually(t, 20*time.Second, "a forgotten job runs again", func() error {
		if ran() != 2 {
			return errors.New("not yet")
		}
		return nil
	})

	if res := m.Runner(t, "cluster.rotate_keys"); res.Code != 0 {
		t.Fatal(res)
	}
	e2e.Eventually(t, 30*time.Second, minion.ID+" has the new key",
		func() error { return pinged(t, m, ids) })
	ping(remembered)
	offset := minion.LogSize()
	again()
	minion.WaitFor(t, 30*time.Second, offset,
		"Payload decryption failed even after re-authenticating")
	ping(1)
	if n := ran(); n != 2 {
		t.Errorf("it ran %d times: a publication from before the rotation is good", n)
	}
}

// inject sends a message of one frame to the minion on its connection to a port, while the master
// sends nothing.
func (r *relay) inject(port int, payload []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if s.port == port && !s.ended {
			frame := binary.BigEndian.AppendUint64([]byte{2}, uint64(len(payload)))
			_, err := s.client.Write(append(frame, payload...))
			return err
		}
	}
	return errors.New("the minion has no connection")
}
