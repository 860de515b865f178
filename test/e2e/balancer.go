package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"clustermaster/lb"
)

// Balancer is a running HAProxy.
type Balancer struct {
	Process
	Addr   string
	dir    string
	socket string
}

// BalancerOptions choose the configuration.
type BalancerOptions struct {
	File string        // below the module's root; default lb/haproxy.cfg
	Idle time.Duration // replaces the client and server idle limits
}

// StartBalancer runs HAProxy on addr with the shipped configuration and these masters.
func StartBalancer(t testing.TB, dir, addr string, masters []string, o BalancerOptions) *Balancer {
	t.Helper()
	program := HAProxyProgram(t)
	if o.File == "" {
		o.File = "lb/haproxy.cfg"
	}
	shipped, err := os.ReadFile(filepath.Join(Root(t), o.File))
	if err != nil {
		t.Fatal(err)
	}
	b := &Balancer{Process: Process{Name: "haproxy", Output: filepath.Join(dir, "haproxy.log")},
		Addr: addr, dir: dir, socket: filepath.Join(dir, "haproxy.sock")}
	text, err := fillIn(string(shipped), addr, masters, o.Idle)
	if err != nil {
		t.Fatalf("%s: %v", o.File, err)
	}
	text = strings.Replace(text, "global\n", "global\n    stats socket "+b.socket+
		" mode 600 level admin\n", 1)
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := Command(t, program, "-c", "-f", file); r.Code != 0 {
		t.Fatalf("haproxy refuses the configuration\n%v", r)
	}
	ShowOnFailure(t, b.Output)
	b.Start(t, program, "-db", "-f", file)
	Eventually(t, 10*time.Second, "haproxy answers",
		func() error { _, err := b.Up("publish"); return err })
	return b
}

var idleLine = regexp.MustCompile(`^(\s*timeout (?:client|server)) \S+\s*$`)

// fillIn edits the shipped file as its head asks an administrator to, for a start by any user. It
// also replaces the idle limits, unless idle is 0.
func fillIn(shipped, addr string, masters []string, idle time.Duration) (string, error) {
	servers := make([]lb.Server, len(masters))
	for i, m := range masters {
		servers[i] = lb.Server{Name: fmt.Sprintf("master%d", i+1), Addr: m}
	}
	text, err := lb.FillIn(lb.WithoutRoot(shipped), addr, servers)
	if err != nil || idle == 0 {
		return text, err
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if code, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"),
			"#"); idleLine.MatchString(code) {
			line = idleLine.ReplaceAllString(code,
				fmt.Sprintf("${1} %dms", idle.Milliseconds())) + "\n"
		}
		out.WriteString(line)
	}
	return out.String(), nil
}

// ask sends one command to HAProxy's own socket.
func (b *Balancer) ask(command string) ([]string, error) {
	conn, err := net.DialTimeout("unix", b.socket, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return nil, err
	}
	var lines []string
	s := bufio.NewScanner(conn)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	return lines, s.Err()
}

// Sessions counts the open sessions of a server.
func (b *Balancer) Sessions(backEnd, server string) (int, error) {
	lines, err := b.ask("show stat")
	if err != nil {
		return 0, err
	}
	for _, line := range lines {
		if cols := strings.Split(line, ","); len(cols) > 4 && cols[0] == backEnd &&
			cols[1] == server {
			return strconv.Atoi(cols[4])
		}
	}
	return 0, fmt.Errorf("no server %s of %s", server, backEnd)
}

// Up returns, for each back end whose name starts with prefix, the masters (numbers from 1) that
// the balancer sees up; those that serve if none is ready don't count.
func (b *Balancer) Up(prefix string) (map[string][]int, error) {
	lines, err := b.ask("show stat")
	if err != nil {
		return nil, err
	}
	up := map[string][]int{}
	for _, line := range lines {
		cols := strings.Split(line, ",")
		if len(cols) < 18 || !strings.HasPrefix(cols[0], prefix) || cols[0] == "alive" ||
			!strings.HasPrefix(cols[1], "master") || strings.HasSuffix(cols[1], ":alive") {
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(cols[1], "master"))
		if err != nil {
			return nil, fmt.Errorf("server %q", cols[1])
		}
		if _, ok := up[cols[0]]; !ok {
			up[cols[0]] = nil
		}
		if strings.HasPrefix(cols[17], "UP") {
			up[cols[0]] = append(up[cols[0]], n)
		}
	}
	if len(up) == 0 {
		return nil, fmt.Errorf("no back end %s", prefix)
	}
	return up, nil
}
