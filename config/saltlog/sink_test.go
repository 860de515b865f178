package saltlog

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func logTo(t *testing.T, s Sink) *slog.Logger {
	t.Helper()
	return slog.New(New(Output{To: s, Layout: layout(t, "%(message)s", "")}))
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRenamedFile is what logrotate does without a signal.
func TestRenamedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log", "master")
	f, err := OpenFile(path, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log := logTo(t, f)
	log.Info("one")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	f.looked = time.Now().Add(-lookEach)
	log.Info("two")
	if old, now := read(t, path+".1"), read(t, path); old != "one\n" || now != "two\n" {
		t.Errorf("old %q new %q", old, now)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm()&0o137 != 0 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	// A folder in place of the file: lines go on to where they went.
	if err := os.Rename(path, path+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	f.looked = time.Now().Add(-lookEach)
	log.Info("lost")
	log.Info("three")
	if got := read(t, path+".2"); got != "two\nthree\n" {
		t.Errorf("got %q", got)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "master")
	f, err := OpenFile(path, 10, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log := logTo(t, f)
	for _, s := range []string{"aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "gggg"} {
		log.Info(s)
	}
	if got := read(t, path+".2") + "|" + read(t, path+".1") + "|" +
		read(t, path); got != "cccc\ndddd\n|eeee\nffff\n|gggg\n" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("a third old file is kept")
	}
}

func TestSyslog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	l, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := OpenSyslog("file://" + path + "/LOG_DAEMON")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	logTo(t, s).Error("disk is full", "path", "/srv")
	buf := make([]byte, 1000)
	if err := l.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, _, err := l.ReadFrom(buf)
	if got := string(buf[:n]); err != nil || !strings.HasPrefix(got, "<27>") ||
		!strings.Contains(got, "salt-master[") || !strings.Contains(got, "disk is full path=/srv") {
		t.Errorf("got %q, %v", got, err)
	}
	for address, want := range map[string]string{
		"file:///dev/log": "unixgram /dev/log", "file:///dev/log/LOG_SYSLOG": "unixgram /dev/log",
		"udp://h": "udp h:514", "tcp://h:51/LOG_LOCAL3": "tcp h:51",
	} {
		network, to, _, err := parseSyslog(address)
		if network+" "+to != want || err != nil {
			t.Errorf("%s: %s %s, %v; want %s", address, network, to, err, want)
		}
	}
	if err := CheckSyslog("udp://h/LOG_NONE"); err == nil {
		t.Error("an unknown facility is taken")
	}
}

func TestJournalFields(t *testing.T) {
	t.Parallel()
	got := journalFields(&Record{Component: "cluster",
		Fields: []slog.Attr{slog.String("g.took-ms", "3")}})
	if got["SALT_COMPONENT"] != "cluster" || got["SALT_G_TOOK_MS"] != "3" {
		t.Errorf("got %v", got)
	}
}
