package runner

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sort"
	"strings"
	"testing"

	"clustermaster/value"
)

// history is a job cache in memory.
type history struct {
	records    []JobRecord
	returns    map[string]map[string]JobReturn
	incomplete string
}

func (h history) Job(_ context.Context, jid string) (JobRecord, bool, error) {
	for _, r := range h.records {
		if r.JID == jid {
			return r, true, nil
		}
	}
	return JobRecord{JID: jid}, false, nil
}

func (h history) Returns(_ context.Context, jid string) (map[string]JobReturn, error) {
	return h.returns[jid], nil
}
func (h history) Returned(_ context.Context, jid string) ([]string, error) {
	return sortedIDs(h.returns[jid]), nil
}

func (h history) EachLoad(_ context.Context, fn func(string, value.Raw) error) (string, error) {
	for _, r := range h.records {
		packed, err := value.Pack(r.Load)
		if err == nil {
			err = fn(r.JID, packed)
		}
		if err != nil {
			return "", err
		}
	}
	return h.incomplete, nil
}

const (
	jid1 = "20261121093513244628"
	jid2 = "20261121100000000001"
	jid3 = "20261122100000000001"
)

func jobs() JobsDeps {
	load := func(fun, tgt any, more ...value.Pair) value.Map {
		return append(value.Map{{Key: "fun", Value: fun}, {Key: "arg", Value: []any{int64(1)}},
			{Key: "tgt", Value: tgt}, {Key: "tgt_type", Value: "glob"},
			{Key: "user", Value: "root"}}, more...)
	}
	return JobsDeps{Jobs: history{
		records: []JobRecord{
			{JID: jid3, Load: load("saltutil.find_job", []any{"web-a"})},
			{JID: jid1, Load: load("test.ping", "web*",
				value.Pair{Key: "metadata", Value: value.Map{{Key: "team", Value: "blue"},
					{Key: "weight", Value: int64(1)}}}),
				Minions: []string{"web-a", "web-b"}},
			{JID: jid2, Load: load([]any{"pkg.install", "state.apply"}, "db1")},
		},
		returns: map[string]map[string]JobReturn{
			jid1: {"web-a": {Return: true, Retcode: int64(0), Success: true}},
			jid2: {"db1": {Return: value.Map{}, Out: "highstate"}},
			"9":  {"ghost": {Return: "spontaneous"}},
		},
	}}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	listed1 := "{'Function': 'test.ping', 'Arguments': [1], 'Target': 'web*', 'Target-type': 'glob', 'User': 'root', 'Metadata': {'team': 'blue', 'weight': 1}"
	start1 := "'StartTime': '2026, Nov 21 09:35:13.244628'"
	tests := []struct {
		name   string
		fun    string
		args   []any
		kwargs value.Map
		want   string
	}{
		{"lookup", "jobs.lookup_jid", []any{jid1}, nil, "{'web-a': True}"},
		{"lookup missing", "jobs.lookup_jid", []any{jid1}, value.Map{{Key: "missing", Value: true}},
			"{'web-a': True, 'web-b': 'Minion did not return'}"},
		{"lookup only missing", "jobs.lookup_jid", []any{jid1},
			value.Map{{Key: "missing", Value: true}, {Key: "returned", Value: false}},
			"{'web-b': 'Minion did not return'}"},
		{"lookup with outputter", "jobs.lookup_jid", []any{jid2}, nil,
			"{'outputter': 'highstate', 'data': {'db1': {}}}"},
		{"lookup unknown", "jobs.lookup_jid", []any{"123"}, nil, "{}"},
		{"lookup without publication", "jobs.lookup_jid", []any{"9"}, nil,
			"{'ghost': 'spontaneous'}"},
		{"list_job", "jobs.list_job", []any{jid1}, nil, "{'jid': '" + jid1 + "', " + listed1[1:] +
			", 'Minions': ['web-a', 'web-b'], " + start1 +
			", 'Result': {'web-a': {'return': True, 'retcode': 0, 'success': True}}}"},
		{"list_job unknown", "jobs.list_job", []any{"123"}, nil,
			"{'jid': '123', 'Error': 'Cannot contact returner or no job with this jid', 'StartTime': '', 'Result': {}}"},
		{"exit_success", "jobs.exit_success", []any{jid1}, nil, "{'web-a': True, 'web-b': False}"},
		{"filter", "jobs.list_jobs_filter", []any{int64(1)}, nil,
			"[{'Function': ['pkg.install', 'state.apply'], 'Arguments': [1], 'Target': 'db1', 'Target-type': 'glob', 'User': 'root', 'JID': '" + jid2 + "', 'StartTime': '2026, Nov 21 10:00:00.000001'}]"},
		{"last_run none", "jobs.last_run", nil, value.Map{{Key: "function", Value: "x.y"}},
			"False"},
		{"master", "jobs.master", nil, nil, "[]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _, _ := newRunner(t, Jobs(jobs()))
			if res := r.Run(t.Context(), Request{Fun: tt.fun, Args: tt.args, Kwargs: tt.kwargs},
				nil); value.Repr(res.Return) != tt.want {
				t.Errorf("%s\nwant %s", value.Repr(res.Return), tt.want)
			}
		})
	}
}

func TestListJobs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		kwargs value.Map
		want   string // which jobs, as 1 2 3
	}{
		{"all", nil, "1 2 3"},
		{"function", value.Map{{Key: "search_function", Value: "test.*"}}, "1"},
		{"function of a compound job", value.Map{{Key: "search_function", Value: "state.*"}}, "2"},
		{"functions", value.Map{{Key: "search_function", Value: "test.*, pkg.install"}}, "1 2"},
		{"function list", value.Map{{Key: "search_function",
			Value: []any{"saltutil.*", "test.ping"}}}, "1 3"},
		{"target", value.Map{{Key: "search_target", Value: "web*"}}, "1 3"},
		{"metadata", value.Map{{Key: "search_metadata",
			Value: value.Map{{Key: "x", Value: 1}, {Key: "team", Value: "blue"}}}}, "1"},
		{"metadata by another number", value.Map{{Key: "search_metadata",
			Value: value.Map{{Key: "weight", Value: 1.0}}}}, "1"},
		{"no map", value.Map{{Key: "search_metadata", Value: "blue"}}, ""},
		{"no text", value.Map{{Key: "search_metadata", Value: ""}}, "1 2 3"},
		{"other metadata", value.Map{{Key: "search_metadata",
			Value: value.Map{{Key: "team", Value: "red"}}}}, ""},
		{"from", value.Map{{Key: "start_time", Value: "2026, Nov 21 09:40"}}, "2 3"},
		{"until", value.Map{{Key: "end_time", Value: "2026-11-22"}}, "1 2"},
		{"both", value.Map{{Key: "start_time", Value: "2026-11-21 09:35:13.3"},
			{Key: "end_time", Value: "Nov 21 2026 23:00"}}, "2"},
		{"American", value.Map{{Key: "start_time", Value: "11/22/2026"}}, "3"},
		{"as date prints it", value.Map{{Key: "end_time", Value: "Sat Nov 21 09:40:00 2026"}}, "1"},
		{"with a zone", value.Map{{Key: "end_time", Value: "2026-11-21 10:40:00+01:00"}}, "1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, _, _ := newRunner(t, Jobs(jobs()))
			res := r.Run(t.Context(), Request{Fun: "jobs.list_jobs", Kwargs: tt.kwargs}, nil)
			m, ok := res.Return.(value.Map)
			if !ok {
				t.Fatalf("%+v", res)
			}
			var got []string
			for _, p := range m {
				got = append(got, map[any]string{jid1: "1", jid2: "2", jid3: "3"}[p.Key])
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("listed %q, want %s", got, tt.want)
			}
		})
	}
	d := jobs()
	h := d.Jobs.(history)
	h.incomplete = "incomplete: 3 of 256 partitions"
	d.Jobs = h
	r, _, _ := newRunner(t, Jobs(d))
	said := ""
	r.Run(t.Context(), Request{Fun: "jobs.list_jobs"},
		func(kind string, v any) { said += kind + " " + v.(string) })
	if !strings.HasPrefix(said, "warning incomplete: 3 of 256 partitions") {
		t.Errorf("said %q", said)
	}
	if res := r.Run(t.Context(), Request{Fun: "jobs.list_jobs",
		Kwargs: value.Map{{Key: "start_time", Value: "soon"}}}, nil); res.Retcode != 1 {
		t.Errorf("an unreadable time: %+v", res)
	}
}

// dense decodes to forty times its bytes.
var dense = slices.Repeat([]any{[]any{}}, 10_000)

// TestOnlyTheNewestJobsAreHeld: an answer holds what it shows, and has room for all jobs, whatever
// a minion says of some.
func TestOnlyTheNewestJobsAreHeld(t *testing.T) {
	h := history{}
	for i := range 60 { // the newest is neither the first nor the last
		load := value.Map{{Key: "fun", Value: "test.arg"}, {Key: "arg", Value: dense},
			{Key: "fun_args", Value: dense}}
		if i%2 == 1 {
			load = value.Map{{Key: "fun", Value: "test.ping"}, {Key: "fun_args", Value: dense}}
		}
		h.records = append(h.records, JobRecord{JID: fmt.Sprintf("202611210938%08d", i*37%60),
			Load: load})
	}
	vast := []any{strings.Repeat("x", 3<<20)}
	h.records = append(h.records, JobRecord{JID: "20261121093700000000",
		Load: value.Map{{Key: "fun", Value: "test.vast"}, {Key: "arg", Value: vast}}})
	many := history{}
	for i := range 2000 {
		many.records = append(many.records, JobRecord{JID: fmt.Sprintf("202611210938%08d", i),
			Load: value.Map{{Key: "fun", Value: "test.ping"},
				{Key: "user", Value: strings.Repeat("x", shortField-10)}}})
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(32 << 20)) // 2 MB of an answer
	for _, tt := range []struct {
		of     history
		fun    string
		args   []any
		kwargs value.Map
		jobs   int // -1: refused
		short  int
	}{
		{many, "jobs.list_jobs", nil, nil, -1, 0},
		{many, "jobs.list_jobs_filter", []any{int64(2000)}, nil, -1, 0},
		{many, "jobs.list_jobs_filter", []any{int64(2)}, nil, 2, 0},
		{h, "jobs.list_jobs", nil, nil, 61, 22},
		{h, "jobs.list_jobs", nil, value.Map{{Key: "search_function", Value: "test.ping"}}, 30, 0},
		{h, "jobs.list_jobs", nil, value.Map{{Key: "search_function", Value: "test.vast"}}, 1, 1},
		{h, "jobs.list_jobs", nil, value.Map{{Key: "start_time", Value: "2026, Nov 22 00:00"}}, 0, 0},
		{h, "jobs.list_jobs_filter", []any{int64(60)}, nil, 60, 21},
		{h, "jobs.list_jobs_filter", []any{int64(2)}, nil, 2, 0},
		{h, "jobs.list_jobs_filter", []any{int64(0)}, nil, 0, 0},
		{h, "jobs.last_run", nil, nil, 1, 0},
	} {
		r, _, _ := newRunner(t, Jobs(JobsDeps{Jobs: tt.of}))
		said := ""
		res := r.Run(t.Context(), Request{Fun: tt.fun, Args: tt.args, Kwargs: tt.kwargs},
			func(_ string, v any) { said += value.Str(v) })
		if tt.jobs < 0 {
			if text := value.Str(res.Return); res.Retcode != 1 || !strings.Contains(text, "too much") {
				t.Errorf("%s %v: %d, %.200s", tt.fun, tt.args, res.Retcode, text)
			}
			continue
		}
		text := value.Str(res.Return)
		if n := strings.Count(text, "'Function'"); res.Retcode != 0 || n != tt.jobs {
			t.Errorf("%s %v %v: %d jobs, %.200s", tt.fun, tt.args, tt.kwargs, n, text)
		}
		warned := strings.Contains(said, fmt.Sprintf("large fields of %d jobs", tt.short))
		if n := strings.Count(text, "['"+unlisted+"']"); n != tt.short || warned != (tt.short > 0) {
			t.Errorf("%s %v %v: %d short jobs, want %d: %s", tt.fun, tt.args, tt.kwargs, n, tt.short,
				said)
		}
		if tt.jobs == 1 && tt.short == 0 && !strings.Contains(text, "20261121093800000059") ||
			tt.jobs == 2 && len(tt.of.records) < 100 &&
				strings.Index(text, "93800000058'") > strings.Index(text, "93800000059'") {
			t.Errorf("%s lists others than the newest: %.200s", tt.fun, text)
		}
	}
}

// resolved is a Resolver that finds the same minions by each target.
type resolved struct {
	ids        []string
	incomplete string
}

func (r resolved) Resolve(context.Context, string, any) ([]string, string, error) {
	return r.ids, r.incomplete, nil
}

// keptPillars has a dense pillar of every minion; of web-b it has none.
type keptPillars struct{ PillarMaker }

func (keptPillars) Kept(_ context.Context, id, _ string) (value.Map, bool, error) {
	if id == "web-b" {
		return nil, false, nil
	}
	return value.Map{{Key: "x", Value: dense}}, true, nil
}

// TestShownPillarsAreBounded: the kept pillars of a few minions are shown, those of many refused.
func TestShownPillarsAreBounded(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(32 << 20)) // 2 MB of an answer
	for _, n := range []int{2, 50} {
		ids := resolved{ids: []string{"web-b"}}
		for i := range n {
			ids.ids = append(ids.ids, fmt.Sprintf("x%d", i))
		}
		r, _, _ := newRunner(t, Pillar(keptPillars{}, ids))
		res := r.Run(t.Context(), Request{Fun: "pillar.show_pillar_cache"}, nil)
		m, _ := res.Return.(value.Map)
		if refused := strings.Contains(value.Str(res.Return), "too much"); refused != (n == 50) ||
			!refused && len(m) != n {
			t.Errorf("of %d minions: %d, %.200s", n, len(m), value.Str(res.Return))
		}
	}
}

// fleet answers jobs for minions.
type fleet struct {
	minions []string
	silent  []string
	answers map[string]Answer
	asked   *Ask
	// what Answers say of the same name
	incomplete string
}

func (f fleet) Ask(_ context.Context, a Ask) (Answers, error) {
	if f.asked != nil {
		*f.asked = a
	}
	return Answers{Incomplete: f.incomplete, JID: "1", Minions: f.minions, Returned: f.answers, Silent: f.silent,
		NoReturn: "no return"}, nil
}

func TestJobsActive(t *testing.T) {
	t.Parallel()
	job := func(pid int) any {
		return []any{value.Map{{Key: "jid", Value: jid1}, {Key: "fun", Value: "test.sleep"},
			{Key: "arg", Value: []any{int64(9)}}, {Key: "tgt", Value: "*"},
			{Key: "tgt_type", Value: "glob"},
			{Key: "user", Value: "root"}, {Key: "pid", Value: int64(pid)}}}
	}
	d := jobs()
	d.Minions = fleet{answers: map[string]Answer{"web-b": {Return: job(2)},
		"web-c": {Return: job(3)}, "x": {Return: "error"}, "y": {Return: []any{}}}}
	r, _, _ := newRunner(t, Jobs(d))
	res := r.Run(t.Context(), Request{Fun: "jobs.active"}, nil)
	want := "{'" + jid1 +
		"': {'Function': 'test.sleep', 'Arguments': [9], 'Target': '*', 'Target-type': 'glob', 'User': 'root', 'StartTime': '2026, Nov 21 09:35:13.244628', " +
		"'Running': [{'web-b': 2}, {'web-c': 3}], 'Returned': ['web-a']}}"
	if got := value.Repr(res.Return); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// ring is a key store in memory.
type ring struct {
	keys map[string][]string
	note string
	log  []string
}

func (k *ring) KeyLists(context.Context) (map[string][]string, string, error) {
	return k.keys, k.note, nil
}

func (k *ring) KeyText(_ context.Context, id, _ string) (string, bool, error) {
	return "key of " + id, id != "gone", nil
}

func (k *ring) ChangeKeys(_ context.Context, action KeyAction, ids, states []string) (KeyChange,
	error) {
	k.log = append(k.log, fmt.Sprint(action, " ", ids, " ", states))
	to := map[KeyAction]string{AcceptKeys: StateAccepted, RejectKeys: StateRejected}[action]
	for _, id := range ids {
		for _, s := range states {
			for i, have := range k.keys[s] {
				if have == id {
					k.keys[s] = append(append([]string{}, k.keys[s][:i]...), k.keys[s][i+1:]...)
				}
			}
		}
		if to != "" {
			k.keys[to] = append(k.keys[to], id)
			sort.Strings(k.keys[to])
		}
	}
	return KeyChange{Changed: ids, Warnings: []string{"m3 did not confirm"}}, nil
}

func (k *ring) PutKey(_ context.Context, id, pub string, replace bool) (KeyChange, error) {
	k.log = append(k.log, fmt.Sprint("put ", id, " ", pub, " ", replace))
	for _, s := range KeyStates {
		if slices.Contains(k.keys[s], id) && !replace {
			return KeyChange{}, nil
		}
	}
	return KeyChange{Changed: []string{id}, Warnings: []string{"m3 did not confirm"}}, nil
}

func someKeys() *ring {
	return &ring{keys: map[string][]string{StateAccepted: {"web-a", "web-b"},
		StatePending: {"new1", "new2"}, StateRejected: {"bad"}}}
}

// pushed are files of minions.
type pushed struct {
	PushedFiles
	files []PushedFile
}

func (p pushed) List(context.Context) ([]PushedFile, string, error) {
	return slices.Clone(p.files), "", nil
}

func TestPushedList(t *testing.T) {
	t.Parallel()
	r, _, _ := newRunner(t, Pushed(pushed{files: []PushedFile{{ID: "web-b", Path: "x", Size: 1},
		{ID: "web-a", Path: "b/c", Size: 2, At: "now"}, {ID: "other", Path: "x"},
		{ID: "web-a", Path: "a", Size: 3}}},
		resolved{[]string{"web-b", "web-a", "web-c"}, "incomplete: 3 of 256 partitions"}))
	said := ""
	res := r.Run(t.Context(), Request{Fun: "pushed.list"},
		func(kind string, v any) { said += kind + " " + v.(string) })
	const want = "{'web-a': {'a': {'size': 3, 'pushed': ''}, 'b/c': {'size': 2, 'pushed': 'now'}}, " +
		"'web-b': {'x': {'size': 1, 'pushed': ''}}}"
	if got := value.Repr(res.Return); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if !strings.HasPrefix(said, "warning incomplete: 3 of 256 partitions") {
		t.Errorf("said %q", said)
	}
}

// TestIncompleteTargets: whoever asks minions of a target that may have missed some hears of it.
func TestIncompleteTargets(t *testing.T) {
	t.Parallel()
	f := fleet{incomplete: "incomplete: 3 of 256 partitions"}
	r, _, _ := newRunner(t, append(append(Manage(ManageDeps{Minions: f}), Mine(nil, f)...), Salt(f)...))
	for fun, args := range map[string][]any{"manage.status": nil, "manage.up": nil,
		"manage.down": nil, "mine.update": {"os:Debian", "grain"},
		"salt.execute": {"os:Debian", "test.ping"}} {
		said := ""
		r.Run(t.Context(), Request{Fun: fun, Args: args},
			func(kind string, v any) { said += kind + " " + v.(string) })
		if strings.Count(said, "warning incomplete: 3 of 256 partitions") != 1 {
			t.Errorf("%s said %q", fun, said)
		}
	}
}

// As in Salt, nothing is cleared of no target, and of the mine no function.
func TestNothingIsCleared(t *testing.T) {
	t.Parallel()
	r, _, _ := newRunner(t, CacheClearing(nil, resolved{ids: []string{"web-a"}}))
	for fun, args := range map[string][]any{"cache.clear_mine_func": {"*"}, "cache.clear_all": nil} {
		if res := r.Run(t.Context(), Request{Fun: fun, Args: args}, nil); res.Return != false {
			t.Errorf("%s: %+v", fun, res)
		}
	}
}

func TestManage(t *testing.T) {
	t.Parallel()
	asked := Ask{}
	f := fleet{minions: []string{"web-a", "web-b", "old", "next"}, asked: &asked,
		answers: map[string]Answer{
			"web-a": {Return: "3008.3"}, "old": {Return: "3006.9"}, "next": {Return: "3009.0"},
			"web-x": {Return: "boom", Retcode: 1},
		}}
	keys := someKeys()
	r, _, _ := newRunner(t, Manage(ManageDeps{Minions: f, Keys: keys, Version: "3008.3"}))
	tests := []struct{ fun, want string }{
		{"manage.status", "{'up': ['next', 'old', 'web-a', 'web-x'], 'down': ['web-b']}"},
		{"manage.up", "['next', 'old', 'web-a', 'web-x']"},
		{"manage.down", "['web-b']"},
		{"manage.present", "['next', 'old', 'web-a', 'web-x']"},
		{"manage.not_present", "['web-b']"},
		{"manage.list_not_state", "['web-b']"},
		{"manage.versions",
			"{'Up to date': {'web-a': '3008.3'}, 'Minion requires update': {'old': '3006.9'}, 'Minion newer than master': {'next': '3009.0'}, 'Minion offline': {'web-b': False, 'web-x': False}, 'Master': '3008.3'}"},
	}
	for _, tt := range tests {
		if res := r.Run(t.Context(), Request{Fun: tt.fun}, nil); value.Repr(res.Return) != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.fun, value.Repr(res.Return), tt.want)
		}
	}
	r.Run(t.Context(), Request{Fun: "manage.down",
		Kwargs: value.Map{{Key: "removekeys", Value: true}, {Key: "timeout", Value: int64(2)},
			{Key: "tgt", Value: "web*"}}}, nil)
	if len(keys.log) != 1 || !strings.HasPrefix(keys.log[0], "delete [web-b]") ||
		asked.Timeout.Seconds() != 2 || asked.Tgt != "web*" {
		t.Errorf("keys %q, asked %+v", keys.log, asked)
	}
	grains := func(ipv4, ipv6 []any) Answer {
		return Answer{Return: value.Map{{Key: "ipv4", Value: ipv4}, {Key: "ipv6", Value: ipv6}}}
	}
	f.answers = map[string]Answer{
		"web-a": grains([]any{"127.0.0.1", "169.254.1.1", "192.0.2.7"}, []any{"::1", "2001:db8::7"}),
		"web-b": grains([]any{"127.0.0.1"}, []any{"::1", "fe80::7", "2001:db8::7"}),
		"old":   grains(nil, []any{"::1"}), "next": {Return: "'grains.item' is not available."},
	}
	r, _, _ = newRunner(t, Manage(ManageDeps{Minions: f, Keys: keys, Version: "3008.3"}))
	res := r.Run(t.Context(), Request{Fun: "manage.alived",
		Kwargs: value.Map{{Key: "show_ip", Value: true}}}, nil)
	if got, want := value.Repr(res.Return),
		"{'next': '', 'old': '', 'web-a': '192.0.2.7', 'web-b': '2001:db8::7'}"; got != want {
		t.Errorf("with addresses: %s\nwant %s", got, want)
	}
}

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want int
	}{{"3006.9", "3006.28", -1}, {"3008.3", "3008.3", 0}, {"3008.3+12.gabc", "3008.3",
		1}, {"3008rc1", "3008", -1}, {"3009.0", "3008.3", 1}, {"v3008.3", "3008.3", 0}} {
		got := compareVersions(tt.a, tt.b)
		if got > 0 {
			got = 1
		} else if got < 0 {
			got = -1
		}
		if got != tt.want {
			t.Errorf("compareVersions(%s, %s) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestKeyListsMayBeOld(t *testing.T) {
	t.Parallel()
	keys := someKeys()
	keys.note = "no quorum"
	reg, err := NewRegistry(KeyFamily(KeyFamilyDeps{Keys: keys,
		Local: func() (map[string]string, error) { return nil, nil }}))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Request{{Fun: "key.list_all"}, {Fun: "key.list", Args: []any{"acc"}},
		{Fun: "key.name_match", Args: []any{"*"}}} {
		said := ""
		New(WheelClient, reg, Deps{Events: &bus{},
			NewJID: func() string { return "1" }}).Run(t.Context(), r,
			func(_ string, v any) { said += fmt.Sprint(v) })
		if !strings.Contains(said, "no quorum") {
			t.Errorf("%s says %q of old lists", r.Fun, said)
		}
	}
}

// A key that would take minutes is refused before any is made.
func TestKeySizes(t *testing.T) {
	t.Parallel()
	reg, err := NewRegistry(KeyFamily(KeyFamilyDeps{
		Generate: func(bits int) (string, string, error) {
			t.Errorf("a key of %d bits is made", bits)
			return "", "", nil
		}}))
	if err != nil {
		t.Fatal(err)
	}
	r := New(WheelClient, reg, Deps{Events: &bus{}, NewJID: func() string { return "1" }})
	for _, size := range []any{int64(8193), "1e9", "many", []any{}} {
		res := r.Run(t.Context(), Request{Fun: "key.gen",
			Kwargs: value.Map{{Key: "keysize", Value: size}}}, nil)
		if text := value.Str(res.Return); !strings.Contains(text, "keysize must be") {
			t.Errorf("%v: %s", size, text)
		}
	}
}

func TestSaltExecute(t *testing.T) {
	t.Parallel()
	asked := Ask{}
	r, _, _ := newRunner(t, Salt(fleet{minions: []string{"a", "b"}, silent: []string{"b", "none"},
		answers: map[string]Answer{"a": {Return: int64(7)}}, asked: &asked}))
	res := r.Run(t.Context(), Request{Fun: "salt.execute", Args: []any{"*", "test.arg"},
		Kwargs: value.Map{{Key: "arg", Value: []any{int64(1)}},
			{Key: "kwarg", Value: value.Map{{Key: "k", Value: "v"}}}}}, nil)
	if value.Repr(res.Return) != "{'a': 7, 'b': 'no return', 'none': 'no return'}" ||
		fmt.Sprint(asked.Args, " ", asked.Kwargs, " ", asked.TgtType) != "[1] [{k v}] glob" {
		t.Errorf("%+v, asked %+v", res, asked)
	}
}

func TestKeyFamily(t *testing.T) {
	t.Parallel()
	tests := []struct {
		fun    string
		args   []any
		kwargs value.Map
		want   string
		log    string
	}{
		{"key.list_all", nil, nil,
			"{'minions_pre': ['new1', 'new2'], 'minions_rejected': ['bad'], 'minions': ['web-a', 'web-b'], 'minions_denied': [], 'local': ['m1.pem', 'm1.pub']}", ""},
		{"key.list", []any{"accepted"}, nil, "{'minions': ['web-a', 'web-b']}", ""},
		{"key.list", []any{"nonsense"}, nil, "{}", ""},
		{"key.name_match", []any{"*a*"}, nil,
			"{'minions_rejected': ['bad'], 'minions': ['web-a']}", ""},
		{"key.accept", []any{"new1"}, nil, "{'minions': ['new1']}", "accept [new1] [minions_pre]"},
		{"key.accept", []any{"new*,bad"}, value.Map{{Key: "include_rejected", Value: true}},
			"{'minions': ['bad', 'new1', 'new2']}",
			"accept [new1 new2 bad] [minions_pre minions_rejected]"},
		{"key.accept", []any{"web-a"}, nil, "{'minions': ['web-a']}", ""},
		{"key.reject", []any{"web-a"}, value.Map{{Key: "include_accepted", Value: true}},
			"{'minions_rejected': ['web-a']}", "reject [web-a] [minions_pre minions]"},
		{"key.delete", []any{"bad"}, nil, "{}",
			"delete [bad] [minions_pre minions_rejected minions minions_denied]"},
		{"key.accept_dict", []any{value.Map{{Key: "minions_pre", Value: []any{"new2"}},
			{Key: "minions_rejected", Value: []any{"bad"}}}}, nil,
			"{'minions': ['new2'], 'minions_rejected': ['bad']}", "accept [new2] [minions_pre]"},
		{"key.reject_dict", []any{value.Map{{Key: "nosuch", Value: []any{"web-?", "none"}},
			{Key: "minions_pre", Value: []any{"new2", "new1"}}}}, nil,
			"{'minions': ['web-?'], 'minions_rejected': ['new1', 'new2']}",
			"reject [new2 new1] [minions_pre]"},
		{"key.delete_dict", []any{value.Map{{Key: "minions_rejected", Value: []any{"bad"}},
			{Key: "minions", Value: []any{"new1"}}}}, nil, "{'minions_pre': ['new1']}",
			"delete [bad] [minions_rejected]; delete [new1] [minions]"},
		{"key.finger", []any{"web-*"}, nil,
			"{'minions': {'web-a': 'sha256 of key of web-a', 'web-b': 'sha256 of key of web-b'}}",
			""},
		{"key.finger", []any{"web-a", "md5"}, nil,
			"{'minions': {'web-a': 'md5 of key of web-a'}}", ""},
		{"key.finger", []any{"m1*,bad"}, nil,
			"{'minions_rejected': {'bad': 'sha256 of key of bad'}, 'local': {'m1.pub': 'sha256 of pub'}}",
			""},
		{"key.master_key_str", nil, nil, "{'local': {'m1.pub': 'pub'}}", ""},
		{"key.key_str", []any{"new1"}, nil, "{'minions_pre': {'new1': 'key of new1'}}", ""},
		{"key.finger_master", nil, nil, "{'local': {'m1.pub': 'sha256 of pub'}}", ""},
		{"key.gen", nil, nil, "{'priv': 'secret 2048', 'pub': 'public 2048'}", ""},
		{"key.gen", []any{"any"}, value.Map{{Key: "keysize", Value: "4096"}},
			"{'priv': 'secret 4096', 'pub': 'public 4096'}", ""},
		{"key.gen_accept", []any{"we_b/9. "}, value.Map{{Key: "keysize", Value: int64(512)}},
			"{'priv': 'secret 2048', 'pub': 'public 2048'}", "put web9 public 2048 false"},
		{"key.gen_accept", []any{"new1"}, nil, "{}", "put new1 public 2048 false"},
		{"key.gen_accept", []any{"new1", int64(8192), "True"}, nil,
			"{'priv': 'secret 8192', 'pub': 'public 8192'}", "put new1 public 8192 true"},
		{"key.gen_accept", []any{"../.."}, nil, "'Exception occurred in wheel key.gen_accept: " +
			"id_ has no letter, digit or hyphen; give the id of a minion'", ""},
		{"key.gen_accept", []any{strings.Repeat("a", 256)}, nil,
			"'Exception occurred in wheel key.gen_accept: id_ has more than 255 characters; " +
				"give a shorter one'", ""},
	}
	for _, tt := range tests {
		t.Run(tt.fun, func(t *testing.T) {
			t.Parallel()
			keys := someKeys()
			reg, err := NewRegistry(KeyFamily(KeyFamilyDeps{
				Keys: keys, HashType: "sha256",
				Generate: func(bits int) (string, string, error) {
					return fmt.Sprint("secret ", bits), fmt.Sprint("public ", bits), nil
				},
				Fingerprint: func(pem, hash string) (string, error) {
					return hash + " of " +
						pem, nil
				},
				Local: func() (map[string]string, error) {
					return map[string]string{"m1.pub": "pub",
						"m1.pem": ""}, nil
				},
			}))
			if err != nil {
				t.Fatal(err)
			}
			b := &bus{}
			r := New(WheelClient, reg, Deps{Events: b, NewJID: func() string { return "1" }})
			res := r.Run(t.Context(), Request{Fun: tt.fun, Args: tt.args, Kwargs: tt.kwargs}, nil)
			if got := value.Repr(res.Return); got != tt.want ||
				strings.Join(keys.log, "; ") != tt.log ||
				b.tags() != "salt/wheel/1/new salt/wheel/1/ret" {
				t.Errorf("%s\nwant %s\nchanges %q, want %q; events %s", got, tt.want, keys.log,
					tt.log, b.tags())
			}
			if fired := fmt.Sprint(b.fired); strings.Contains(fired, "secret") {
				t.Errorf("a private key is in an event: %s", fired)
			}
		})
	}
}

// leaves is Modules whose functions return the first argument and leave the second as retcode.
type leaves struct{ Modules }

func (leaves) Command(_ context.Context, _ string, args []any, _ value.Map, _, _ bool) (any, int,
	bool, error) {
	return args[0], args[1].(int), true, nil
}

// TestSaltCmdFails: the retcode in __context__ decides whether salt.cmd succeeds. The retcode in
// the return is the exit code of salt-run.
func TestSaltCmdFails(t *testing.T) {
	t.Parallel()
	r, b, _ := newRunner(t, OnMaster(leaves{}))
	for _, tt := range []struct {
		returned, left any
		success        bool
		code           int
	}{
		{"", 0, true, 0},
		{"", 3, false, 0},
		{value.Map{{Key: "retcode", Value: int64(2)}}, 2, false, 2},
		{value.Map{{Key: "retcode", Value: int64(2)}}, 0, true, 2},
	} {
		b.fired = nil
		args := []any{"x.y", tt.returned, tt.left}
		res := r.Run(t.Context(), Request{Fun: "salt.cmd", Args: args}, nil)
		data, _ := b.fired[1].Data.(value.Map)
		if told, _ := data.Get("success"); res.Success != tt.success ||
			told != tt.success || res.Retcode != tt.code || res.Raised ||
			value.Repr(res.Return) != value.Repr(tt.returned) {
			t.Errorf("%v: %+v, event %v", tt, res, told)
		}
		got, err := r.Native(t.Context(), "salt.cmd", args, nil)
		if value.Repr(got) != value.Repr(tt.returned) || err != nil {
			t.Errorf("%v for Python code: %v, %v", tt, got, err)
		}
	}
}

// toldWhom is Modules whose commands return whether they are for a template.
type toldWhom struct{ Modules }

func (toldWhom) Command(_ context.Context, _ string, _ []any, _ value.Map, _,
	forTemplate bool) (any, int, bool, error) {
	return forTemplate, 0, true, nil
}

// TestSaltCmdForTemplates: pillar values are masked in what operators and the schedule get, not in
// what templates and Python code get.
func TestSaltCmdForTemplates(t *testing.T) {
	t.Parallel()
	r, _, _ := newRunner(t, OnMaster(toldWhom{}))
	args := []any{"pillar.items"}
	req := Request{Fun: "salt.cmd", Args: args}
	if got := r.Run(t.Context(), req, nil).Return; got != false {
		t.Errorf("operator: %v", got)
	}
	req.ForTemplate = true
	if got := r.Run(t.Context(), req, nil).Return; got != true {
		t.Errorf("template: %v", got)
	}
	if got, _, err := r.Quiet(t.Context(), "tag", "1", "salt.cmd", args, nil); got != false ||
		err != nil {
		t.Errorf("schedule: %v, %v", got, err)
	}
	if got, err := r.Native(t.Context(), "salt.cmd", args, nil); got != true || err != nil {
		t.Errorf("Python code: %v, %v", got, err)
	}
}
