package backup_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"clustermaster/cluster/backup"
	"clustermaster/cluster/clustertest"
	"clustermaster/cluster/fsm"
)

// TestRestoreSaysWhatItChanges: whoever knew an AES key before a restore knows none after it, and
// the answer names the keys and counts the tokens that go and come, also if it changes nothing.
func TestRestoreSaysWhatItChanges(t *testing.T) {
	t.Parallel()
	const phrase = "correct horse battery"
	c := clustertest.New(t, 1)
	c.WaitReady()
	node := c.Nodes[0].Node
	files := &backup.Files{Cluster: node, Master: "m1", Version: "test", RotateAESKey: true,
		Refuse: func(string, string) error { return nil }}
	do := func(commands ...fsm.Command) {
		t.Helper()
		for _, command := range commands {
			if r, _, err := node.Propose(t.Context(), command); err != nil || r.Refused != "" {
				t.Fatal(r, err)
			}
		}
	}
	accept := func(id string) fsm.Command {
		return &fsm.ImportKeys{Keys: []fsm.Key{{ID: id, Pub: "key of " + id, State: fsm.KeyAccepted}}}
	}
	token := func(n byte) fsm.Command {
		return &fsm.PutToken{Token: fsm.Token{Hash: [32]byte{n}, Owner: "pam/eve",
			Expire: time.Now().Add(time.Hour)}, Max: 9, MaxPerOwner: 9, At: time.Now()}
	}
	accepted := fsm.StateSet(fsm.KeyAccepted)
	do(accept("web1"), accept("gone"), accept("no"), token(1), token(2))
	path := filepath.Join(t.TempDir(), "c.backup")
	if _, err := files.Backup(t.Context(), path, phrase, false); err != nil {
		t.Fatal(err)
	}
	known := []string{string(node.State().AES().Active.Secret)}
	if err := node.RotateAES(t.Context()); err != nil {
		t.Fatal(err)
	}
	known = append(known, string(node.State().AES().Active.Secret))
	do(accept("late"), token(3),
		&fsm.ChangeKeys{Action: fsm.DeleteKeys, IDs: []string{"gone"}, From: accepted},
		&fsm.ChangeKeys{Action: fsm.RejectKeys, IDs: []string{"no"}, From: accepted},
		&fsm.DropToken{Hash: [32]byte{1}})
	for _, test := range []bool{true, false} {
		v, err := files.Restore(t.Context(), path, phrase, false, test)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(v.Dropped, []string{"late"}) || !slices.Equal(v.Again, []string{"gone", "no"}) ||
			v.TokensLost != 1 || v.TokensAgain != 1 {
			t.Errorf("test %t: %+v", test, v)
		}
	}
	if active := string(node.State().AES().Active.Secret); slices.Contains(known, active) {
		t.Error("a minion that was dropped can read publications")
	}
	files.RotateAESKey = false
	_, err := files.Restore(t.Context(), path, phrase, false, false)
	if active := string(node.State().AES().Active.Secret); err != nil || active != known[0] {
		t.Error("without rotate_aes_key the backup's key counts", err)
	}
}
