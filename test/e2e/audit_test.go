package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// auditRecord is a record of cluster.audit.
type auditRecord struct {
	Number   int      `json:"number"`
	Master   string   `json:"master"`
	User     string   `json:"user"`
	Eauth    string   `json:"eauth"`
	From     string   `json:"from"`
	Order    string   `json:"order"`
	Kind     string   `json:"kind"`
	Action   string   `json:"action"`
	Subjects []string `json:"subjects"`
	Result   string   `json:"result"`
	// Automatic marks actions that no operator ordered.
	Automatic bool `json:"automatic"`
}

func (r auditRecord) String() string {
	return fmt.Sprintf("%s: %s/%s from %s by %s: %s %s %v: %s", r.Master, r.Eauth, r.User, r.From,
		r.Order, r.Kind, r.Action, r.Subjects, r.Result)
}

// audits asks a master for the orders of operators.
func audits(t *testing.T, m *Master, args ...string) (list []string) {
	t.Helper()
	var records []auditRecord
	if err := m.RunnerJSON(t, &records, append([]string{"cluster.audit", "limit=0"},
		args...)...); err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if i > 0 && r.Number <= records[i-1].Number {
			t.Errorf("record %d after %d", r.Number, records[i-1].Number)
		}
		if !r.Automatic {
			list = append(list, r.String())
		}
	}
	return list
}

// wheel4506 is Salt's own wheel client, which orders on port 4506.
const wheel4506 = `
import sys, json, salt.config, salt.wheel
client = salt.wheel.WheelClient(salt.config.master_config(sys.argv[1]))
print(json.dumps(client.cmd_sync(json.loads(sys.argv[2]))))
`

// TestAuditTrail: every master lists the orders that several users gave through several doors at
// several masters, without secrets. It still does after the leader died and all restarted.
func TestAuditTrail(t *testing.T) {
	t.Parallel()
	python := filepath.Join(Venvs(t), "salt-3008.3", "bin", "python")
	c := NewCluster(t, ClusterOptions{Masters: 4, Extra: "enable_clear_commands: True\n"})
	users := filepath.Join(c.Dir, "users")
	if err := os.WriteFile(users, []byte("carol:carols-word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Masters {
		m.Configure(t, m.Config(t)+"external_auth:\n  file:\n    ^filename: "+users+
			"\n    carol: ['test.*', '@wheel']\n")
	}
	c.StartMasters(t)
	m1, m2, m3, m4 := c.Masters[0], c.Masters[1], c.Masters[2], c.Masters[3]
	minion := NewMinion(t, c.Dir, MinionOptions{ID: "minion", Release: "3008.3", Master: m1.Addr,
		Extra: quick})
	minion.Run(t)
	Eventually(t, 60*time.Second, "the cluster is at level 2", func() error {
		var v struct {
			Level struct{ Cluster int } `json:"level"`
		}
		if err := m1.RunnerJSON(t, &v, "cluster.members"); err != nil || v.Level.Cluster < 2 {
			return fmt.Errorf("%+v, %v", v, err)
		}
		return nil
	})
	Eventually(t, 90*time.Second, "the minion's key is pending", func() error {
		if keys, err := m2.Keys(t); err != nil ||
			!slices.Equal(keys["minions_pre"], []string{"minion"}) {
			return fmt.Errorf("%v, %v", keys, err)
		}
		return nil
	})

	ok := func(r Result) string {
		t.Helper()
		if r.Code != 0 {
			t.Fatalf("%v", r)
		}
		return r.Stdout
	}
	before := len(audits(t, m1))
	wheel := func(password string) Result {
		return Command(t, python, "-c", wheel4506, filepath.Join(m2.ConfDir, "master"),
			fmt.Sprintf(`{"fun": "key.accept", "match": "minion", "eauth": "file", "username": "carol", "password": %q}`, password))
	}
	// and it leaves no record
	if r := wheel("wrong"); r.Code != 1 || !strings.Contains(r.Stderr, "EauthAuthenticationError") {
		t.Fatalf("a stranger: %v", r)
	}
	if out := ok(wheel("carols-word")); !strings.Contains(out, `"success": true`) {
		t.Fatal(out)
	}
	ok(m1.Key(t, "-d", "minion", "-y"))
	var token struct{ Token string }
	if err := m3.RunnerJSON(t, &token, "auth.mk_token", "username=carol", "password=carols-word",
		"eauth=file"); err != nil || token.Token == "" {
		t.Fatalf("%+v, %v", token, err)
	}
	var rotated struct {
		Secret string `json:"cluster_secret"`
	}
	if err := m2.RunnerJSON(t, &rotated, "cluster.rotate_secret"); err != nil ||
		rotated.Secret == "" {
		t.Fatalf("%+v, %v", rotated, err)
	}
	ok(m1.Runner(t, "cluster.remove", "master4", "keep_secret=True"))
	m4.Stop(t, 20*time.Second)
	m1.Runner(t, "cluster.allow", "nobody") // changes nothing

	uid := fmt.Sprintf("socket, uid %d", os.Getuid())
	me := "root"
	if os.Getuid() != 0 {
		me = os.Getenv("USER")
	}
	line := func(m *Master, order, what string) string {
		return fmt.Sprintf("%s: /%s from %s by %s: %s", m.ID, me, uid, order, what)
	}
	want := []string{
		fmt.Sprintf("%s: file/carol from %s by wheel.key.accept: keys accept [minion]: changed",
			m2.ID, "ADDRESS"),
		line(m1, "salt-key", "secrets rotate [aes]: changed"), // staged first, for the deletion
		line(m1, "salt-key", "keys delete [minion]: changed"),
		line(m3, "auth.mk_token", "tokens make [file/carol]: changed"),
		line(m2, "cluster.rotate_secret", "secrets rotate [cluster_secret]: changed"),
		line(m1, "cluster.remove", "members demote [master4]: changed"),
		line(m1, "cluster.remove", "members remove [master4]: changed"),
		line(m1, "cluster.remove", "secrets rotate [session]: changed"),
		line(m1, "cluster.remove", "secrets rotate [aes]: changed"),
		line(m1, "cluster.remove", "secrets set [key of user root]: changed"),
		line(m1, "cluster.allow", "members allow [nobody]: unchanged"),
	}
	check := func(m *Master, when string) {
		t.Helper()
		got := audits(t, m)[before:]
		if len(got) > 0 {
			_, rest, _ := strings.Cut(got[0], " from ")
			from, _, _ := strings.Cut(rest, " by ")
			if !strings.HasPrefix(from, "127.") {
				t.Errorf("the order on port 4506 came from %s", from)
			}
			got[0] = strings.Replace(got[0], from, "ADDRESS", 1)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s, %s tells\n%s\nwant\n%s", when, m.ID, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
	left := []*Master{m1, m2, m3}
	for _, m := range left {
		check(m, "at once")
	}
	if got := audits(t, m3, "kind=members", "since=1h"); len(got) < 3 ||
		!strings.HasSuffix(got[len(got)-1], "[nobody]: unchanged") {
		t.Errorf("members alone: %v", got)
	}
	var newest []auditRecord
	if err := m3.RunnerJSON(t, &newest, "cluster.audit", "limit=1", "kind=tokens"); err != nil ||
		len(newest) != 1 || newest[0].Action != "make" {
		t.Errorf("the newest of tokens: %v, %v", newest, err)
	}
	if r := m3.Runner(t, "cluster.audit", "kind=secret"); r.Code != 1 ||
		!strings.Contains(r.Stdout+r.Stderr,
			"the kinds are keys, members, secrets, tokens, state") {
		t.Errorf("an unknown kind: %v", r)
	}

	leader := c.Leader(t, m1)
	leader.Kill(t)
	alive := slices.DeleteFunc(slices.Clone(left), func(m *Master) bool { return m == leader })
	Eventually(t, 30*time.Second, "another leader", func() error {
		if v, err := alive[0].Members(t); err != nil || v.Leader == "" || v.Leader == leader.ID {
			return fmt.Errorf("%+v, %v", v, err)
		}
		return nil
	})
	for _, m := range alive {
		check(m, "under another leader")
	}
	for _, m := range alive {
		m.Kill(t)
	}
	for _, m := range left {
		m.Run(t)
	}
	c.WaitReady(t, 60*time.Second, left...)
	for _, m := range left {
		check(m, "after a restart of all")
		all := ok(m.Runner(t, "cluster.audit", "limit=0", "--out=json"))
		if !json.Valid([]byte(all)) {
			t.Errorf("no JSON: %s", all)
		}
		for name, secret := range map[string]string{"token": token.Token,
			"old cluster_secret": c.Secret, "new cluster_secret": rotated.Secret,
			"password": "carols-word"} {
			if strings.Contains(all, secret) {
				t.Errorf("%s tells the %s", m.ID, name)
			}
		}
	}
}
