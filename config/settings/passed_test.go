package settings

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"clustermaster/config"
)

// loadWhole reads a configuration as it is.
func loadWhole(t *testing.T, text string) *config.Options {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o, _, err := config.Load(dir, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// fromElsewhere are options that no field of config.Options has.
const fromElsewhere = `
master_id: other
mine_get: {'web*': ['test.*']}
auth_events_autosign_grains: [accept]
git_pillar_includes: False
`

// TestOptionsArePassedOn: with another value of every option than its default, every field that a
// package takes from the options has another value than by default.
func TestOptionsArePassedOn(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../testdata/all.good.yml")
	if err != nil {
		t.Fatal(err)
	}
	set, plain := loadWhole(t, string(b)+fromElsewhere), loadWhole(t, "")
	set.MasterSignPubkey = false // its key is made in a folder of the machine's
	for _, part := range []struct {
		name  string
		of    func(o *config.Options) any
		fixed string // fields that no option changes, or that are set later
	}{
		{"master", func(o *config.Options) any {
			m, err := Master(o)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}, "Node MasterSignKey PubkeySignature ExtJobCache PillarVersion MasterTops"},
		{"acl", func(o *config.Options) any { return ACL(o) }, ""},
		{"auth", func(o *config.Options) any { return Auth(o) },
			"BackEnds RestTimeout"},
		{"cluster", func(o *config.Options) any { return Cluster(o) },
			"Addr Version SPKI NodePub Pins JoinKey Found Seal OwedAfter SessionGrace" +
				" AESGrace Partitions StateSync Unfit OnFounded Now Writing OpenLog CheckEvery" +
				" LastBackup Alarms Extensions SnapshotThreshold ServeWithout ReplaceAfter"},
		{"peer", func(o *config.Options) any { return Peer(o, "") },
			"Advertise Key Pins Level Network JoinTimeout MaxHandshakes" +
				" MaxHandshakesPer MaxConnsPer MaxJoins JoinTries JoinTriesTotal" +
				" JoinTryEvery Log Registerer"},
		{"ring", func(o *config.Options) any { return Ring(o) },
			"WriteTimeout ReadTimeout ReadyTimeout StreamTimeout StatusEvery" +
				" RepairEvery ExpireEvery ScrubEvery ScrubRate MaxList WriteQueue" +
				" LaneRecords LaneBytes Streams CacheBytes MemTableBytes Now ClockJudged Tick" +
				" WriteRPCs LookAgain RepairsInFlight Room Writing Seal PartBytes FS FlushDelay Compilers"},
		{"backups", func(o *config.Options) any { return Backups(o) }, ""},
		{"roots", func(o *config.Options) any { return Roots(o) },
			"Tick KeepAside BlobGrace Settle Low OnInstalled"},
		{"files", func(o *config.Options) any { return Files(o) }, ""},
		{"pillar files", func(o *config.Options) any { return PillarFiles(o) },
			"IgnoreRegex IgnoreGlob FollowSymlinks IgnoreSymlinks"},
		{"pillar", func(o *config.Options) any { return Pillar(o, o.ID) },
			"ExcludeExtPillar"},
		{"render", func(o *config.Options) any { return Render(o) }, ""},
		{"orchestrate", func(o *config.Options) any { return Orchestrate(o) }, ""},
		{"python", func(o *config.Options) any { return Python(o) },
			"Python Natives Answer"},
		{"minions", func(o *config.Options) any { return Minions(o, 1000) },
			"MaxInFlight MaxStrangers StrangersRate MinRate HandshakeTimeout WriteTimeout" +
				" PingInterval PingTimeout SilentTimeout DrainTimeout MaxHeld LongLived" +
				" KeepAliveIdle KeepAliveInterval KeepAliveCount Total"},
		{"local cache", func(o *config.Options) any { return LocalCache(o) }, ""},
		{"minionfs", func(o *config.Options) any { m, _ := Minionfs(o); return m },
			"Ignored"},
	} {
		with, without := reflect.ValueOf(part.of(set)), reflect.ValueOf(part.of(plain))
		for i := range with.NumField() {
			field := with.Type().Field(i)
			if !field.IsExported() || slices.Contains(strings.Fields(part.fixed), field.Name) {
				continue
			}
			if reflect.DeepEqual(with.Field(i).Interface(), without.Field(i).Interface()) {
				t.Errorf("%s: no option changes %s, which is %v", part.name, field.Name,
					with.Field(i))
			}
		}
	}
}
