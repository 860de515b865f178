package commands

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clustermaster/test/e2e"
)

// postgres is a real PostgreSQL with its own folder, on a loopback address. It does not run as
// root, which it would refuse.
type postgres struct {
	e2e.Process
	addr, dir, bin string
}

// tables are the tables that the returner pgjsonb needs.
const tables = `CREATE TABLE jids (jid varchar(255) PRIMARY KEY, load jsonb NOT NULL);
CREATE TABLE salt_returns (fun varchar(50) NOT NULL, jid varchar(255) NOT NULL, return jsonb NOT NULL,
  id varchar(255) NOT NULL, success varchar(10) NOT NULL, full_ret jsonb NOT NULL,
  alter_time timestamptz DEFAULT now());
CREATE TABLE salt_events (id bigserial, tag varchar(255) NOT NULL, data jsonb NOT NULL,
  alter_time timestamptz DEFAULT now(), master_id varchar(255) NOT NULL);
`

// newPostgres makes a server with the returner's tables. It does not run yet.
func newPostgres(t testing.TB) *postgres {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Skip("needs PostgreSQL: apt-get install postgresql")
	}
	p := &postgres{addr: e2e.FreeBase(t, 1).Master(1), dir: filepath.Join(databaseFolder(t), "data"),
		bin: filepath.Dir(found[len(found)-1])}
	p.Process = e2e.Process{Name: "postgres", Output: filepath.Join(e2e.Folder(t), "output")}
	e2e.ShowOnFailure(t, p.Output)
	path, args := p.command("initdb", "-D", p.dir, "-A", "trust", "-U", "salt", "--no-sync", "-E",
		"UTF8", "--no-locale")
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	p.run(t)
	p.query(t, "postgres", "CREATE DATABASE salt")
	p.query(t, "salt", tables)
	p.Stop(t, 20*time.Second)
	return p
}

const nobody = 65534

// command is a program of PostgreSQL as a user other than root.
func (p *postgres) command(name string, args ...string) (string, []string) {
	return asNobody(append([]string{filepath.Join(p.bin, name)}, args...)...)
}

func (p *postgres) run(t testing.TB) {
	t.Helper()
	path, args := p.command("postgres", "-D", p.dir, "-h", p.addr, "-k", "", "-F")
	p.Start(t, path, args...)
	e2e.Eventually(t, 30*time.Second, "the database", func() error {
		_, err := p.ask("postgres", "SELECT 1")
		return err
	})
}

func (p *postgres) ask(database, sql string) (string, error) {
	cmd := exec.Command(filepath.Join(p.bin, "psql"), "-h", p.addr, "-U", "salt", "-d", database,
		"-v", "ON_ERROR_STOP=1", "-qAtc", sql)
	cmd.Env = append(os.Environ(), "PGCONNECT_TIMEOUT=5", "LC_ALL=C.UTF-8")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = errors.New(string(exit.Stderr))
	}
	return string(out), err
}

func (p *postgres) query(t testing.TB, database, sql string) string {
	t.Helper()
	out, err := p.ask(database, sql)
	if err != nil {
		t.Fatalf("%.40s: %v", sql, err)
	}
	return strings.TrimSpace(out)
}

// options tell a master where the database is.
func (p *postgres) options() string {
	return fmt.Sprintf("returner.pgjsonb.host: %s\nreturner.pgjsonb.port: 5432\n"+
		"returner.pgjsonb.db: salt\nreturner.pgjsonb.user: salt\nreturner.pgjsonb.pass: none\n"+
		"returner.pgjsonb.connect_timeout: 5\n", p.addr)
}
