package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/value"
)

// upgrading is a cluster of three that changes as orders come.
type upgrading struct {
	view  ClusterView
	trail []string
	fail  string // the step that goes wrong
}

func newUpgrading() *upgrading {
	u := &upgrading{view: ClusterView{ID: "m1", Leader: "m2", Level: 1, Supported: 1}}
	for _, id := range []string{"m1", "m2", "m3"} {
		u.view.Peers = append(u.view.Peers, PeerView{ID: id, Addr: id + ":4520", Version: "1.0",
			State: "voter", Voter: true, Reachable: true, Serving: true, Ready: true})
	}
	return u
}

func (u *upgrading) peer(id string) *PeerView {
	return &u.view.Peers[slices.IndexFunc(u.view.Peers,
		func(p PeerView) bool { return p.ID == id })]
}

func (u *upgrading) View(context.Context) (ClusterView, error) {
	v := u.view
	v.Peers = slices.Clone(v.Peers)
	return v, nil
}

func (u *upgrading) Ring(context.Context) (RingView, error) { return RingView{}, nil }

func (u *upgrading) Remove(context.Context, string, bool) (RemovalView, error) {
	return RemovalView{}, errors.New("not asked for")
}

func (u *upgrading) Allow(context.Context, string) (bool, error) {
	return false, errors.New("not asked for")
}

func (u *upgrading) Drain(_ context.Context, id string, on bool) (string, error) {
	u.trail = append(u.trail, fmt.Sprintf("drain %s %t", id, on))
	if u.fail == "drain" {
		return "", errors.New("no other master is ready")
	}
	p := u.peer(id)
	p.Ready, p.State = !on, "voter"
	if on {
		p.State = "draining"
	}
	return id, nil
}

func (u *upgrading) restart(_ context.Context, p PeerView, release string) (string, error) {
	u.trail = append(u.trail, "restart "+p.ID)
	switch u.fail {
	case "restart":
		return "no route to host\n", errors.New("exit status 255")
	case "release":
		release = "0.9"
	case "dies":
		u.peer(p.ID).Reachable = false
		return "", nil
	case "ill":
		u.peer("m1").Ready = false
	}
	u.peer(p.ID).Version = release
	return "restarted\n", nil
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	const all = "drain m3 true, restart m3, drain m3 false, drain m2 true, restart m2, drain m2 false"
	for _, tt := range []struct {
		name, fail string
		args       []any
		trail      string
		says       string // in the result and what is printed
		code       int
	}{
		{"all, the leader last, this one left", "", []any{"1.1"}, all,
			"{'release': '1.1', 'upgraded': ['m3', 'm2'], 'left': ['m1']}", 0},
		{"says what is left", "", []any{"1.1"}, all,
			"m1 is this master: run salt-run cluster.upgrade 1.1 on another one", 0},
		{"shows what the command printed", "", []any{"1.1"}, all, "m3: restarted", 0},
		{"a test", "", []any{"1.1", 600, true}, "", "'would_upgrade': ['m3', 'm2']", 0},
		{"nothing to do", "", []any{"1.0"}, "", "'upgraded': [], 'left': []", 0},
		{"no release", "", []any{""}, "", "name the release", 1},
		{"not drained", "drain", []any{"1.1"}, "drain m3 true",
			"upgrade stops at m3, upgraded so far: none; it was not drained: no other master is ready", 1},
		{"the command fails", "restart", []any{"1.1"}, "drain m3 true, restart m3",
			"it stays drained until salt-run cluster.undrain m3: cluster_upgrade_command: exit status 255", 1},
		{"another release came up", "release", []any{"1.1", 0.05}, "drain m3 true, restart m3",
			"runs release 1.1 and serves: it runs release 0.9", 1},
		{"it does not come back", "dies", []any{"1.1", 0.05}, "drain m3 true, restart m3",
			"it is not in contact", 1},
		{"another one gets ill", "ill", []any{"1.1", 0.05},
			"drain m3 true, restart m3, drain m3 false",
			"it runs the release, but the cluster is not healthy: waited 50ms until the cluster is healthy: m1 is not ready", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newUpgrading()
			u.fail = tt.fail
			r, _, _ := newRunner(t, Upgrades(UpgradeDeps{Status: u, Members: u, Restart: u.restart,
				Every: time.Millisecond}))
			said := ""
			res := r.Run(t.Context(), Request{Fun: "cluster.upgrade", Args: tt.args},
				func(_ string, v any) { said += value.Str(v) })
			said += value.Str(res.Return)
			if got := strings.Join(u.trail, ", "); got != tt.trail {
				t.Errorf("did %q, want %q", got, tt.trail)
			}
			if !strings.Contains(said, tt.says) || res.Retcode != tt.code {
				t.Errorf("said %q, code %d; want %q, %d", said, res.Retcode, tt.says, tt.code)
			}
		})
	}
}

func TestUpgradeWithoutACommandWaits(t *testing.T) {
	t.Parallel()
	u := newUpgrading()
	r, _, _ := newRunner(t, Upgrades(UpgradeDeps{Status: u, Members: u, Every: time.Millisecond}))
	said := ""
	res := r.Run(t.Context(), Request{Fun: "cluster.upgrade", Args: []any{"1.1"}},
		func(_ string, v any) {
			line := value.Str(v)
			said += line
			// the operator does
			if id, _, asks := strings.Cut(line, ": install release 1.1 on it"); asks {
				u.peer(id).Version = "1.1"
			}
		})
	if res.Retcode != 0 || !strings.Contains(said,
		"m3: install release 1.1 on it (m3:4520) and restart salt-master there") {
		t.Errorf("code %d, %v, said %q", res.Retcode, res.Return, said)
	}
}

// TestUpgradeCommandOfThePage runs the command that docs/upgrade.md shows, with a stand-in for ssh:
// ssh takes no brackets.
func TestUpgradeCommandOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile(`(?m)^    #!/bin/sh\n(    .*\n)+`).FindString(string(page))
	dir := t.TempDir()
	for name, text := range map[string]string{"hook": strings.ReplaceAll(script, "    ", ""),
		"ssh": "#!/bin/sh\nprintf '%s|' \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	upgrade := UpgradeCommand([]string{filepath.Join(dir, "hook")})
	for addr, host := range map[string]string{"10.0.0.2:4520": "10.0.0.2",
		"m2.example.com:4520": "m2.example.com", "[2001:db8::2]:4520": "2001:db8::2"} {
		out, err := upgrade(t.Context(), PeerView{ID: "m2", Addr: addr}, "0.3.0")
		if want := "root@" + host + "|apt-get install -y clustermaster=0.3.0 && systemctl restart salt-master|"; err != nil ||
			out != want {
			t.Errorf("%s: %q, %v; want %q", addr, out, err, want)
		}
	}
}
