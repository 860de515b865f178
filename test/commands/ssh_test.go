package commands

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"clustermaster/test/e2e"
	"clustermaster/test/sshtest"
)

// sshAddr is where the sshd of these tests listens, and a port where nobody does.
const (
	sshAddr   = "127.91.15.2"
	sshClosed = 1
)

// sshOptions are options of salt-ssh in the master's configuration. KEY is a key that the server
// takes.
const sshOptions = `roster: flat,mine
ssh_priv: KEY
ssh_timeout: 10
extension_modules: DIR/ext
enable_ssh_minions: True
`

// sshTarget is an entry of a roster; KNOWN is a file of known hosts, PATH the folder of a Python.
const sshTarget = `{host: ADDRESS, port: PORT, user: USER, thin_dir: DIR/thin, set_path: 'PATH:$PATH', ` +
	`grains: {place: far away}, ssh_options: ['UserKnownHostsFile=KNOWN']}`

// sshFiles are rosters and what is applied on their targets, below DIR.
var sshFiles = map[string]string{
	"etc/roster": "box: " + sshTarget + `
closed: {host: ADDRESS, port: CLOSED, user: USER}
denied: {host: ADDRESS, port: PORT, user: USER, priv: STRANGER, ssh_options: ['UserKnownHostsFile=KNOWN']}
`,
	"ext/roster/mine.py": `
import fnmatch

import salt.utils.yaml

TARGET = """` + sshTarget + `"""


def targets(tgt, tgt_type="glob", **kwargs):
    names = tgt.split(",") if isinstance(tgt, str) else tgt
    return {"own": salt.utils.yaml.safe_load(TARGET)} if any(fnmatch.fnmatch("own", n) for n in names) else {}
`,
	"srv/far/init.sls": `
DIR/made:
  file.managed:
    - source: salt://far/text
    - template: jinja
note:
  test.succeed_without_changes: []
`,
	"srv/far/text": "{{ grains['place'] }} {{ pillar['text'] }} {{ pillar.get('given') }}\n",
	"srv/bad.sls":  "broken:\n  test.fail_without_changes: []\n",
	"srv/orch/far.sls": `
states:
  salt.state: [{tgt: 'own*'}, {sls: [far, bad]}, {ssh: True}, {roster: mine}, {pillar: {given: in the orchestration}}]
closed:
  salt.function: [{name: test.ping}, {tgt: 'closed*'}, {ssh: True}]
denied:
  salt.state: [{tgt: 'denied*'}, {sls: far}, {ssh: True}]
listed:
  salt.function: [{name: test.arg}, {tgt: [box]}, {tgt_type: list}, {arg: [one, ünï]}, {kwarg: {a: two}}, {ssh: True}]
`,
	"srv/orch/nobody.sls": `
nobody:
  salt.state: [{tgt: 'nosuch*'}, {sls: far}, {ssh: True}]
roster:
  salt.function: [{name: test.ping}, {tgt: 'box*'}, {ssh: True}, {roster: nosuch}]
`,
}

// sshSettings are what Salt's answers to sshScenes depend on beside settings.
func sshSettings() string {
	var b strings.Builder
	b.WriteString(sshOptions)
	for _, name := range slices.Sorted(maps.Keys(sshFiles)) {
		fmt.Fprintf(&b, "%s %q\n", name, sshFiles[name])
	}
	return b.String()
}

func sshScenes() []scene {
	timeless := func(l line) line {
		return l.mask(`"(duration|start_time|jid|__jid__)": [^,\n]*`, `"$1"`)
	}
	orchestrate := func(name string) line {
		return timeless(run("state.orchestrate", name, "--out=json")).
			mask(`(?m)^\[(ERROR|WARNING) *\] .*\n`, ""). // Log lines of orchestrations
			mask(`"__pub_pid": [0-9]+`, `"__pub_pid"`).
			mask(`Failed to import returner [^\n]*\n(TRACEBACK\n)?TypeError: [^\n]*\n`, "")
	}
	return []scene{
		{name: "ssh_cmd", more: sshSettings, lines: []line{
			run("ssh.cmd", "box*", "cmd.run_all", "[echo ünï]", "kwarg={env: {A: b}}",
				"--out=json").mask(`"(jid|pid)": [^,\n]*`, `"$1"`),
			run("ssh.cmd", "[closed, denied]", "test.ping", "tgt_type=list"),
			timeless(run("ssh.cmd", "box*", "state.apply", "[far]", "kwarg={test: True}",
				"--out=json")).mask("pkg_sum=[0-9a-f]+", "SUM"),
			run("ssh.cmd", "nosuch*", "test.ping"),
		}},
		{name: "ssh_orchestrate", more: sshSettings, lines: []line{orchestrate("orch.far")}},
		{name: "ssh_minions", more: sshSettings, lines: []line{
			salt("box*", "cmd.run", "exit 3"),
			salt("-L", "own,ghost", "test.ping").anyOrder(),
			salt("closed*", "test.ping"),
			salt("nosuch*", "test.ping"),
		}},
		{name: "ssh_nobody", more: sshSettings, lines: []line{
			orchestrate("orch.nobody").unlike("Targets of salt-ssh that nothing matches",
				func(_, ours result) error {
					for _, comment := range []string{
						"No minions returned: No matching targets found in roster.",
						"No minions responded: No matching targets found in roster."} {
						if !strings.Contains(ours.stdout, fmt.Sprintf("%q", comment)) {
							return fmt.Errorf("no comment %q", comment)
						}
					}
					return nil
				}),
		}},
		{name: "ssh_no_roster", more: sshSettings, before: func(t *testing.T, p *pair) {
			for _, s := range p.sides() {
				if err := os.Remove(filepath.Join(s.ConfDir, "roster")); err != nil {
					t.Fatal(err)
				}
			}
		}, lines: []line{
			// Salt's job cache asks the roster once more, because of enable_ssh_minions.
			run("ssh.cmd", "box*", "test.ping").mask(`(?s)(\n\[ERROR   \] No matching [^\n]*\n).*`, "$1"),
		}},
	}
}

// TestSSH runs salt-ssh beside Salt's master and ours, against a real sshd: the runner ssh.cmd,
// states with ssh: True, a roster of the site, and Salt's own program.
func TestSSH(t *testing.T) {
	t.Parallel()
	server := sshtest.Start(t, sshAddr)
	key, stranger := server.Accepts(t, "key", ""), server.Key(t, "stranger", "")
	known := server.Known(t, "known", filepath.Join(server.Dir, "host"))
	venv := filepath.Join(e2e.Venvs(t), "salt-"+reference, "bin")
	own := e2e.Ours(t)
	p := &pair{ours: newSide(t, "clustermaster", programs{filepath.Dir(own.Salt)}, own)}
	if live() {
		p.theirs = newSide(t, "salt", startLibrary(t, reference), e2e.Theirs(t, reference))
	}
	for _, s := range p.sides() {
		filled := func(text string) string {
			return strings.NewReplacer("ADDRESS", server.Addr, "PORT", fmt.Sprint(server.Port),
				"CLOSED", fmt.Sprint(sshClosed), "USER", server.User, "KEY", key,
				"STRANGER", stranger, "KNOWN", known, "'PATH:", "'"+venv+":").Replace(s.fill(text))
		}
		for name, text := range sshFiles {
			path := filepath.Join(s.Dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(filled(text)), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		text := s.Config(t) + filled(sshOptions)
		if s.kind != "salt" {
			text += "python_host: " + filepath.Join(venv, "python3") + "\n"
		}
		s.Configure(t, text)
		s.Run(t)
		// On a busy machine this could take longer than a command may.
		thin := exec.Command(filepath.Join(venv, "python3"), "-c",
			"import sys, salt.utils.thin; salt.utils.thin.gen_thin(sys.argv[1])",
			filepath.Join(s.Dir, "cache"))
		if out, err := thin.CombinedOutput(); err != nil {
			t.Fatalf("gen_thin: %v %s", err, out)
		}
	}
	for _, s := range p.sides() {
		e2e.Eventually(t, 60*time.Second, s.kind+" is ready", s.Ready)
	}
	scenes := sshScenes()
	for _, c := range scenes[:3] {
		t.Run(c.name, func(t *testing.T) { p.play(t, c) })
	}
	for _, s := range p.sides() {
		made, err := os.ReadFile(filepath.Join(s.Dir, "made"))
		if string(made) != "far away ünï in the orchestration\n" {
			t.Errorf("%s: the state made %q, %v", s.kind, made, err)
		}
	}
	t.Run("events and jobs", func(t *testing.T) { sshLeavesTraces(t, p.ours, programs{venv}) })
	t.Run("slow target", func(t *testing.T) { // it counts as running the job
		r := p.ours.call(t, "salt", call{args: []string{"-t", "1", "box*", "cmd.run",
			"sleep 3; echo done"}})
		if r.stdout != "box:\n    done\n" || r.code != 0 {
			t.Errorf("got %v", r)
		}
		// The job cache has what the function returned, as for minions.
		r = p.ours.must(t, "salt-run", "jobs.list_jobs", "search_function=cmd.run", "--out=json")
		jid := lastJobID(r.stdout)
		r = p.ours.must(t, "salt-run", "jobs.lookup_jid", jid, "--out=json")
		if r.stdout != "{\n    \"box\": \"done\"\n}\n" {
			t.Errorf("job %s: %v", jid, r)
		}
	})
	t.Run("caller leaves", func(t *testing.T) { sshEndsWithCaller(t, p.ours, known) })
	for _, c := range scenes[3:] {
		t.Run(c.name, func(t *testing.T) { p.play(t, c) })
	}
}

// lastJobID returns the newest job's id of a text, "" if it has none.
func lastJobID(text string) string {
	return slices.Max(append(jobID.FindAllString(text, -1), ""))
}

// sshLeavesTraces runs Salt's own salt-ssh with the master's configuration, and finds its event and
// the jobs of ssh.cmd.
func sshLeavesTraces(t *testing.T, s *side, salts programs) {
	heard := s.listen(t)
	r := salts.run(t, "salt-ssh", call{args: []string{"-c", s.ConfDir, "--out=json", "box*",
		"test.ping"}})
	if r.stdout != "{\n    \"box\": true\n}\n" || r.code != 0 {
		t.Errorf("salt-ssh: %v", r)
	}
	r = salts.run(t, "salt-ssh", call{args: []string{"-c", s.ConfDir, "box*", "state.apply", "far",
		"pillar={given: by salt-ssh}"}})
	made, err := os.ReadFile(filepath.Join(s.Dir, "made"))
	if string(made) != "far away ünï by salt-ssh\n" || r.code != 0 {
		t.Errorf("state.apply made %q, %v: %v", made, err, r)
	}
	e2e.Eventually(t, 20*time.Second, "the event of salt-ssh", func() error {
		b, err := os.ReadFile(heard.Output)
		if err == nil && !strings.Contains(string(b), "/ret/box\t") {
			err = errors.New("no event")
		}
		return err
	})
	r = s.must(t, "salt-run", "jobs.list_jobs", "search_function=cmd.run_all", "--out=json")
	jid := jobID.FindString(r.stdout)
	if jid == "" || !strings.Contains(r.stdout, `"Target": "box*"`) {
		t.Fatalf("jobs: %v", r)
	}
	if r = s.must(t, "salt-run", "jobs.lookup_jid", jid, "--out=json"); !strings.Contains(r.stdout,
		`"box": {`) {
		t.Errorf("job %s: %v", jid, r)
	}
}

// sshEndsWithCaller presses Ctrl-C during a call: no ssh is left.
func sshEndsWithCaller(t *testing.T, s *side, known string) {
	running := func() (pids []string) {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			b, _ := os.ReadFile(file)
			program, _, _ := strings.Cut(string(b), "\x00")
			if filepath.Base(program) == "ssh" && strings.Contains(string(b), known) {
				pids = append(pids, file)
			}
		}
		return pids
	}
	started := filepath.Join(s.Dir, "started")
	cmd := exec.Command(s.program.Run, "-c", s.ConfDir, "ssh.cmd", "box*", "cmd.run",
		"[touch "+started+"; sleep 300]")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, 60*time.Second, "the command on the target", func() error {
		_, err := os.Stat(started)
		return err
	})
	if len(running()) == 0 {
		t.Error("no ssh runs during the call")
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	e2e.Eventually(t, 20*time.Second, "no ssh is left", func() error {
		if left := running(); len(left) > 0 {
			return fmt.Errorf("%v are", left)
		}
		return nil
	})
}
