package commands

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"clustermaster/test/e2e"
)

// trial tells how a command of a page is tried: here, or by another test or script.
type trial struct {
	run string // here, on a cluster of three masters and minions; asIs: as the page has it
	in  string // a file of the repository that tries it, and what shows that it does
	has string
	why string // it is not tried: the reason
}

const asIs = "="

var (
	tried       = func(in, has string) trial { return trial{in: in, has: has} }
	runs        = func(command string) trial { return trial{run: command} }
	rehearsed   = func(target string) trial { return runs("make -C $ROOT -n " + target) }
	unavailable = func(what string) trial { return trial{why: "needs " + what} }
)

// pageTrials are the pages that lead from a package to a watched cluster, and how each of their
// commands is tried. Names of boxes, minions and folders are replaced by those that are here.
var pageTrials = map[string]map[string]trial{
	"install": {
		"make packages": rehearsed("packages"),
		"dpkg -i dist/clustermaster_*_amd64.deb": tried("tools/packaging/try.sh",
			"inside dpkg -i /new.deb"),
		"clustermaster config check":         runs(asIs),
		"systemctl enable --now salt-master": unavailable("systemd as the first process"),
		"systemctl enable --now --no-block salt-master": unavailable(
			"systemd as the first process"),
		"make test-packages":            rehearsed("test-packages"),
		"make release RELEASE_KEY=PATH": rehearsed("release RELEASE_KEY=none"),
		"ssh-keygen -t ed25519 -f release-key -C release@example.com": runs(
			"ssh-keygen -q -N '' -t ed25519 -f release-key -C release@example.com"),
		"make release RELEASE_KEY=$PWD/release-key": tried("tools/release/release_test.go",
			`exec.Command("./release.sh"`),
		`echo "release@example.com $(cut -d' ' -f1,2 release-key.pub)" > signers`: runs(asIs),
		"tools/release/verify.sh dist/release signers": tried("tools/release/release_test.go",
			`exec.Command("./verify.sh"`),
		"make reproduce":         rehearsed("reproduce"),
		"FRESH=1 make reproduce": rehearsed("reproduce FRESH=1"),
		"salt --versions-report": runs(asIs),
		"make build":             rehearsed("build"),
		"make test-containers":   rehearsed("test-containers"),
		"firewall-cmd --permanent --add-service=clustermaster": unavailable("firewalld"),
		"firewall-cmd --permanent --add-rich-rule='rule family=ipv4 source address=10.0.0.2 " +
			"service name=clustermaster-peers accept'": unavailable("firewalld"),
		"firewall-cmd --reload": unavailable("firewalld"),
		"ufw allow Salt":        unavailable("ufw"),
		"ufw allow from 10.0.0.2 to any app Salt-cluster": unavailable("ufw"),
		"salt-run salt.cmd cmd.run 'iptables -S'":         unavailable("the unit"),
		"systemctl edit salt-master":                      unavailable("systemd as the first process"),
		"docker build -f tools/containers/Containerfile -t clustermaster .": tried(
			"tools/containers/try.sh", "podman build --format docker"),
		"podman build --format docker -f tools/containers/Containerfile -t clustermaster .": tried(
			"tools/containers/try.sh", "podman build --format docker"),
		"clustermaster init --peers 10.0.0.1,10.0.0.2,10.0.0.3 --balancer 10.0.0.100": runs(asIs),
		"apt remove clustermaster": tried("tools/packaging/try.sh", "dpkg -r clustermaster"),
		"apt purge clustermaster":  tried("tools/packaging/try.sh", "dpkg -P clustermaster"),
	},
	"migrate": {
		"clustermaster migrate":      runs("clustermaster migrate --help"),
		"clustermaster migrate plan": tried("test/e2e/migrate_test.go", `tool("plan")`),
		"clustermaster migrate plan --other /mnt/pki-of-master2 --json": tried(
			"test/e2e/migrate_test.go", `plan := []string{"plan", "--json"}`),
		"clustermaster migrate apply --start 'apt-get install -y ./clustermaster_0.2.0_amd64.deb && " +
			"systemctl start salt-master' --undo 'apt-get install -y salt-master && systemctl start " +
			"salt-master'": tried("test/e2e/migrate_test.go", `tool("apply", "--stop"`),
		"clustermaster migrate apply --stop 'apt-get install -y ./clustermaster_0.2.0_amd64.deb; " +
			"systemctl stop salt-master' --undo 'apt-get install -y salt-master && systemctl start " +
			"salt-master'": tried("test/e2e/migrate_test.go", `"--stop", `),
		"clustermaster migrate rollback --start 'apt-get install -y salt-master && " +
			"systemctl start salt-master'": tried("test/e2e/migrate_test.go", `tool("rollback"`),
	},
	"monitoring": {
		"salt-run cluster.health":      runs(asIs),
		"clustermaster status":         runs(asIs),
		"systemctl status salt-master": unavailable("systemd as the first process"),
		"systemctl edit salt-master":   unavailable("systemd as the first process"),
		"salt --async":                 runs("salt --async '*' test.ping"),
		"htpasswd -nbB -C 10 prometheus 'a long password' > /etc/salt/metrics.users": runs(
			"htpasswd -nbB -C 10 prometheus 'a long password' > metrics.users"),
		"htpasswd -B":                     runs("htpasswd -nbB prometheus word"),
		"chown salt: /etc/salt/metrics.*": runs("chown root: metrics.*"),
		"chmod 600 /etc/salt/metrics.users /etc/salt/metrics.key": runs(
			"chmod 600 metrics.users"),
		"promtool check rules /usr/share/clustermaster/monitoring/alerts.yml": runs(
			"promtool check rules $ROOT/tools/monitoring/alerts.yml"),
		"make dashboard-picture":                          rehearsed("dashboard-picture"),
		"salt-run manage.down":                            runs(asIs),
		"salt-key -L":                                     runs(asIs),
		"salt-key -a":                                     runs("salt-key -y -a sim1"),
		"salt-key -r":                                     tried("test/commands/key_test.go", `"-r"`),
		"salt-run cluster.roots_status":                   runs(asIs),
		"salt-run cluster.transfer_leader":                tried("test/e2e/backups_test.go", `"cluster.transfer_leader"`),
		"salt-run pillar.show_pillar MINION":              runs("salt-run pillar.show_pillar sim1"),
		"salt-run jobs.list_jobs search_function=state.*": runs(asIs),
	},
	"capacity": {
		"clustermaster bench": runs("clustermaster bench --help"),
		"make bench":          rehearsed("bench"),
	},
	"ha-setups": {
		"make test": rehearsed("test"),
		"salt-key --gen-signature [--auto-create]": runs(
			"salt-key --gen-signature --auto-create"),
		"clustermaster migrate plan":  tried("test/e2e/migrate_test.go", `tool("plan")`),
		"salt-run cluster.sync_roots": tried("test/e2e/roots_test.go", `"cluster.sync_roots"`),
	},
}

var (
	continued = regexp.MustCompile(`\s*\\\n\s*`)
	toolSpan  = regexp.MustCompile(`^([A-Z]+=\S+ )?(clustermaster|salt[a-z-]*|systemctl|apt|dpkg|make|` +
		`ssh-keygen|echo|tools/\S+\.sh|docker|podman|firewall-cmd|ufw|htpasswd|chown|chmod|promtool) `)
)

// pageCommands are the commands of a page: its indented and fenced lines and its code spans that
// begin with a tool.
func pageCommands(page string) []string {
	var found []string
	fenced := false
	for line := range strings.Lines(continued.ReplaceAllString(page, " ")) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(line, "    ") {
			for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
				if toolSpan.MatchString(span[1]) {
					found = append(found, span[1])
				}
			}
			continue
		}
		if line = strings.TrimSpace(line); toolSpan.MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

// tryPages runs the commands of the pages in pageTrials, in a folder of their own. The environment
// names a cluster of three masters.
func tryPages(t *testing.T, env []string) {
	t.Helper()
	dir, root := t.TempDir(), e2e.Root(t)
	for _, name := range slices.Sorted(maps.Keys(pageTrials)) {
		b, err := os.ReadFile(filepath.Join(root, "docs", name+".md"))
		if err != nil {
			t.Fatal(err)
		}
		left := maps.Clone(pageTrials[name])
		for _, command := range pageCommands(string(b)) {
			how, known := pageTrials[name][command]
			_, first := left[command]
			delete(left, command)
			switch {
			case !known:
				t.Errorf("docs/%s.md: %s: nothing tries it; say in pageTrials how it is tried", name, command)
			case how.in != "" && first:
				if b, err := os.ReadFile(filepath.Join(root, how.in)); err != nil ||
					!strings.Contains(string(b), how.has) {
					t.Errorf("docs/%s.md: %s: %s does not try it with %s (%v)", name, command, how.in,
						how.has, err)
				}
			case how.run != "" && first:
				line := how.run
				if line == asIs {
					line = command
				}
				cmd := exec.Command("bash", "-c", line)
				cmd.Dir, cmd.Env = dir, append(slices.Clip(env), "ROOT="+root, "MAKEFLAGS=")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("docs/%s.md: %s: %v\n%s", name, line, err, out)
				}
			}
		}
		for command := range left {
			t.Errorf("docs/%s.md has no command %s any more; take it out of pageTrials", name, command)
		}
	}
}
