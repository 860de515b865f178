package migrate

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"clustermaster/config"
	"clustermaster/keystore"
	"clustermaster/store/durable"
	"clustermaster/value"
)

// Types of entries in the Raft logs of Salt 3008: LogEntryType in
// salt/cluster/consensus/raft/log.py.
const (
	saltMembers    = 1 // {voters, learners}
	saltRing       = 3 // {members, replicas}
	saltRingExists = 4 // {ring_id, founding_voters, status}
	saltRoute      = 5 // {data_type, ring_id}
)

// wholeLog is the index of a snapshot that stands for no entry: Salt keeps the whole log beside it.
const wholeLog = -1

// recall has Salt's cluster serve again after all of its masters have stopped.
func (m *migration) recall(o *config.Options) {
	voters, err := servesAlone(o)
	switch {
	case err != nil:
		m.say("note     %v; if all masters of Salt's cluster were stopped, it may not serve", err)
	case voters > 0:
		m.say("wrote    the %d voters of Salt's cluster beside its Raft log", voters)
	}
}

// servesAlone writes, beside each Raft log of Salt 3008 on this box, a snapshot of what its entries
// say. Otherwise a cluster of which all masters have stopped never serves again: a new leader
// commits no entry of an earlier term and adds none of its own, and a master opens its request port
// when it sees itself among the voters of a committed entry, or of a snapshot. The masters must be
// stopped. It returns the number of voters, 0 if this box has no such log.
func servesAlone(o *config.Options) (voters int, err error) {
	logs, err := filepath.Glob(filepath.Join(o.CacheDir, "cluster", "consensus", o.Interface, "*", "log"))
	if err != nil {
		return 0, err
	}
	for _, dir := range logs {
		s, err := readSaltLog(dir)
		if err != nil {
			return 0, fmt.Errorf("read the Raft log of Salt's cluster: %w", err)
		}
		path := filepath.Join(filepath.Dir(dir), "snapshot.p")
		if own, err := ownSnapshot(path); err != nil || !own {
			if err != nil {
				return 0, err
			}
			continue
		}
		b, err := s.pack()
		if err != nil {
			return 0, err
		}
		if err := durable.WriteFile(path, b); err != nil {
			return 0, err
		}
		info, err := os.Stat(dir)
		if err != nil {
			return 0, err
		}
		if err := keystore.OwnAs(path, info); err != nil {
			return 0, err
		}
		if filepath.Base(filepath.Dir(dir)) == "cluster" {
			voters = len(s.members["voters"].([]string))
		}
	}
	return voters, nil
}

// ownSnapshot reports whether path is missing or was written by servesAlone, and not by Salt.
func ownSnapshot(path string) (bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	m, err := value.UnpackMap(b)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	index, _ := m.Get("index")
	return index == int64(wholeLog), nil
}

// saltState is what the entries of one of Salt's Raft logs add up to, each part in the form of
// Salt's snapshots.
type saltState struct {
	members, ring map[string]any // ring stays nil in the log of the cluster
	rings, routes map[string]any
	version       map[int]int // index of the last entry of a type
}

// readSaltLog reads a folder of entries: [term, index, command, node, type, ...] in files
// named after the index, from 0 on.
func readSaltLog(dir string) (*saltState, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &saltState{members: map[string]any{"voters": []string{}, "learners": []string{}},
		rings: map[string]any{}, routes: map[string]any{}, version: map[int]int{}}
	n := 0
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".p") {
			n++
		}
	}
	for i := range n {
		b, err := os.ReadFile(filepath.Join(dir, strconv.Itoa(i)+".p"))
		if err != nil {
			return nil, fmt.Errorf("%w; the log does not begin with its first entry", err)
		}
		v, err := value.Unpack(b)
		if err != nil {
			return nil, fmt.Errorf("%s/%d.p: %w", dir, i, err)
		}
		entry, _ := v.([]any)
		if len(entry) < 5 {
			return nil, fmt.Errorf("%s/%d.p is no entry", dir, i)
		}
		command, _ := entry[2].(value.Map)
		kind, _ := entry[4].(int64)
		s.take(int(kind), command)
		s.version[int(kind)] = i
	}
	return s, nil
}

// take applies an entry as Salt's state machines do.
func (s *saltState) take(kind int, c value.Map) {
	switch kind {
	case saltMembers:
		s.members = map[string]any{"voters": sorted(c, "voters"), "learners": sorted(c, "learners")}
	case saltRing:
		if s.ring == nil {
			s.ring = map[string]any{"members": "self", "replicas": int64(1)}
		}
		for key := range s.ring {
			if v, ok := c.Get(key); ok {
				s.ring[key] = v
			}
		}
	case saltRingExists:
		id, status := c.String("ring_id"), c.String("status")
		if status == "" {
			status = "active"
		}
		founders := sorted(c, "founding_voters")
		if v, _ := c.Get("founding_voters"); v == nil { // those of before count
			if before, ok := s.rings[id].(map[string]any); ok {
				founders = before["founding_voters"].([]string)
			}
		}
		s.rings[id] = map[string]any{"founding_voters": founders, "status": status}
	case saltRoute:
		s.routes[c.String("data_type")], _ = c.Get("ring_id")
	}
}

// sorted is a list of texts in an entry, without repetitions.
func sorted(c value.Map, key string) []string {
	v, _ := c.Get(key)
	list, _ := v.([]any)
	out := []string{}
	for _, v := range list {
		if text, ok := v.(string); ok {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pack is the snapshot as Salt's SaltStorage.save_snapshot writes it.
func (s *saltState) pack() ([]byte, error) {
	machines := map[string]any{}
	add := func(name string, kind int, state map[string]any) {
		if version, ok := s.version[kind]; ok {
			state["version"] = version
			machines[name] = state
		}
	}
	add("membership_sm", saltMembers, s.members)
	add("ring_sm", saltRing, s.ring)
	add("ring_registry_sm", saltRingExists, map[string]any{"rings": s.rings})
	add("routing_sm", saltRoute, map[string]any{"routes": s.routes})
	b, err := json.Marshal(map[string]any{"__envelope__": "raft.snapshot.v1", "machines": machines})
	if err != nil {
		return nil, err
	}
	return value.PackNew(value.Map{{Key: "data", Value: base64.StdEncoding.EncodeToString(b)},
		{Key: "index", Value: wholeLog}, {Key: "term", Value: 0}})
}
