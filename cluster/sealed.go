package cluster

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"clustermaster/store/seal"
)

// Purposes of sealing. They are part of the keys.
const (
	sealedLogs      = "raft log"
	sealedSnapshots = "raft snapshot"
)

// sealedLog keeps the data of log entries sealed on disk, each bound to its index, term and type.
// The log cache and peers get them unsealed.
type sealedLog struct {
	raft.LogStore
	box *seal.Box
}

func placeOf(e *raft.Log) []byte {
	place := binary.BigEndian.AppendUint64(nil, e.Index)
	return append(binary.BigEndian.AppendUint64(place, e.Term), byte(e.Type))
}

// StoreLog implements raft.LogStore.
func (s sealedLog) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore.
func (s sealedLog) StoreLogs(entries []*raft.Log) error {
	sealed := make([]*raft.Log, len(entries))
	for i, e := range entries {
		c := *e
		c.Data = s.box.Seal(e.Data, placeOf(e))
		sealed[i] = &c
	}
	return s.LogStore.StoreLogs(sealed)
}

// GetLog implements raft.LogStore.
func (s sealedLog) GetLog(index uint64, entry *raft.Log) error {
	if err := s.LogStore.GetLog(index, entry); err != nil {
		return err
	}
	data, err := s.box.Open(entry.Data, placeOf(entry))
	if err != nil {
		return fmt.Errorf("entry %d of the raft log: %w", index, err)
	}
	entry.Data = data
	return nil
}

// sealedSnapshotStore keeps snapshots sealed on disk. Peers get them unsealed, over TLS.
type sealedSnapshotStore struct {
	raft.SnapshotStore
	key *seal.Key
}

// Create implements raft.SnapshotStore.
func (s sealedSnapshotStore) Create(version raft.SnapshotVersion, index, term uint64,
	configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration,
		configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	w, err := s.key.NewWriter(sink, sealedSnapshots)
	if err != nil {
		_ = sink.Cancel() // the error says more
		return nil, fmt.Errorf("begin sealed snapshot: %w", err)
	}
	return &sealedSink{SnapshotSink: sink, w: w}, nil
}

// List implements raft.SnapshotStore.
func (s sealedSnapshotStore) List() ([]*raft.SnapshotMeta, error) {
	list, err := s.SnapshotStore.List()
	for _, m := range list {
		m.Size = seal.PlainSize(m.Size)
	}
	return list, err
}

// Open implements raft.SnapshotStore. It returns the size of the unsealed contents, which raft
// sends to peers.
func (s sealedSnapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, file, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.key.NewReader(file, sealedSnapshots)
	if err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("snapshot %s: %w", id, err)
	}
	meta.Size = seal.PlainSize(meta.Size)
	return meta, struct {
		io.Reader
		io.Closer
	}{r, file}, nil
}

type sealedSink struct {
	raft.SnapshotSink
	w *seal.Writer
}

func (s *sealedSink) Write(p []byte) (int, error) { return s.w.Write(p) }

func (s *sealedSink) Close() error {
	if err := s.w.Close(); err != nil {
		_ = s.Cancel() // the error says more
		return fmt.Errorf("end sealed snapshot: %w", err)
	}
	return s.SnapshotSink.Close()
}
