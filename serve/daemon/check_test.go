package daemon

import (
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"clustermaster/config"
)

// Config check refuses what a start on this machine refuses, whether or not a master runs.
func TestCheckConfigAsAStart(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	for text, want := range map[string]string{
		"interface: 127.0.0.1\npublish_port: " + port + "\n": "",
		"user: nosuchuser\n": "user: nosuchuser is no user of this machine; make it",
		"interface: 203.0.113.9\n": "interface: 203.0.113.9:4505 can't be listened at: listen tcp " +
			"203.0.113.9:0: bind: cannot assign requested address; set interface to an address of this machine",
		"interface: no-such-card\n":         "set interface to an address of this machine",
		"health_listen: 203.0.113.9:4521\n": "set health_listen to an address of this machine",
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "master"), text)
		code, printed := checked(t, dir)
		if (code == 0) != (want == "") || !strings.Contains(printed, want) ||
			strings.Contains(printed, "good") != (want == "") || !strings.Contains(printed, "warning: a doubt") {
			t.Errorf("%q: %d %s", text, code, printed)
		}
	}
}

// Without a file all is as Salt has it by default, and config check says so.
func TestCheckConfigWithoutAFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nowhere")
	code, printed := checked(t, dir)
	if code != 0 || !strings.Contains(printed, "warning: no file "+filepath.Join(dir, "master")+": all options have their defaults") {
		t.Errorf("%d %s", code, printed)
	}
}

// A port that can't be opened is reported in Salt's words where Salt's master opens it too, and
// with the option to change.
func TestBusyPort(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken := ln.Addr().(*net.TCPAddr).Port
	const end = "The salt master is shutdown. The ports are not available to bind\n"
	of := func(o config.Options) string {
		var said strings.Builder
		if b := busyPort(context.Background(), &o); b != nil {
			b.say(&said)
		}
		return said.String()
	}
	free := config.Options{Interface: "127.0.0.1", HealthListen: "127.0.0.1:0", MetricsListen: "127.0.0.1:0"}
	if got := of(free); got != "" {
		t.Errorf("nothing is taken: %s", got)
	}
	publish, metrics, card := free, free, free
	publish.PublishPort, metrics.MetricsListen, card.Interface = taken, ln.Addr().String(), "no-such-card"
	for _, tt := range []struct {
		o    config.Options
		want []string
		not  string
	}{
		{publish, []string{"[WARNING ] Unable to bind socket " + ln.Addr().String() + ", error: ",
			"; Is there another salt-master running?\n[CRITICAL] publish_port: " + ln.Addr().String() +
				" is taken by another program; stop the other program (ss -ltnp shows it), or set publish_port to another port\n" + end}, "interface"},
		{metrics, []string{"[CRITICAL] metrics_listen: " + ln.Addr().String() + " is taken by another program; ", end},
			"another salt-master"},
		{card, []string{"Unable to bind socket no-such-card:0, error: ", "; set interface to an address of this machine (ip address shows them)\n" + end},
			"another salt-master"},
	} {
		got := of(tt.o)
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %s", want, got)
			}
		}
		if strings.Contains(got, tt.not) {
			t.Errorf("%q in %s", tt.not, got)
		}
	}
}
