package cluster

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"clustermaster/store/seal"
)

func testSeal(t *testing.T, text string) *seal.Key {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat(text, 40)), 0o400); err != nil {
		t.Fatal(err)
	}
	k, err := seal.Load(t.Context(), "file:"+path, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealedLog(t *testing.T) {
	t.Parallel()
	mem := raft.NewInmemStore()
	logs := sealedLog{mem, testSeal(t, "a").Box(sealedLogs)}
	secret := []byte("the cluster's key")
	if err := logs.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: secret},
		{Index: 2, Term: 1, Type: raft.LogNoop}}); err != nil {
		t.Fatal(err)
	}
	var kept, got raft.Log
	if err := mem.GetLog(1, &kept); err != nil || bytes.Contains(kept.Data, secret) {
		t.Errorf("on disk: %q, %v", kept.Data, err)
	}
	if err := logs.GetLog(1, &got); err != nil || !bytes.Equal(got.Data, secret) {
		t.Errorf("got %q, %v", got.Data, err)
	}
	if err := logs.GetLog(2, &got); err != nil || len(got.Data) != 0 || got.Type != raft.LogNoop {
		t.Errorf("got %+v, %v", got, err)
	}
	kept.Index = 3 // an entry in another's place
	if err := mem.StoreLog(&kept); err != nil {
		t.Fatal(err)
	}
	if err := logs.GetLog(3, &got); err == nil {
		t.Error("an entry opens in another's place")
	}
	if err := (sealedLog{mem, testSeal(t, "b").Box(sealedLogs)}).GetLog(1, &got); err == nil {
		t.Error("an entry opens with another key")
	}
}

func TestSealedSnapshots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := sealedSnapshotStore{files, testSeal(t, "a")}
	text := bytes.Repeat([]byte("the cluster's key "), 20_000)
	sink, err := store.Create(1, 7, 2, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := store.List()
	if err != nil || len(list) != 1 || list[0].Size != int64(len(text)) {
		t.Fatalf("%+v, %v", list, err)
	}
	meta, r, err := store.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// A follower reads just as many bytes as the size says.
	if got, err := io.ReadAll(io.LimitReader(r, meta.Size+1)); err != nil ||
		meta.Size != int64(len(text)) || !bytes.Equal(got, text) {
		t.Errorf("%d of %d bytes, %v", len(got), meta.Size, err)
	}
	onDisk, err := os.ReadFile(filepath.Join(dir, "snapshots", meta.ID, "state.bin"))
	if err != nil || bytes.Contains(onDisk, text[:18]) {
		t.Errorf("the snapshot is open on disk, or not there: %v", err)
	}
	if _, r, err := (sealedSnapshotStore{files, testSeal(t, "b")}).Open(meta.ID); err == nil {
		if _, err = io.ReadAll(r); err == nil {
			t.Error("a snapshot opens with another key")
		}
	}
}
