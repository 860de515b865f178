package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clustermaster/test/answers"
	"clustermaster/test/e2e"
)

// olderReference is the release to compare with if 3008 does not have the returner.
const olderReference = "3007.15"

// database is a real database server on a loopback address, with its own folder.
type database interface {
	run(t testing.TB)
	// options tell a master or a minion where the database is.
	options() string
	// rows returns a line for each job ("load JID ...") and each return ("FUN JID ...") that the
	// database holds, ordered by job id.
	rows() ([]string, error)
}

// ask runs a client of a database.
func ask(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = errors.New(string(exit.Stderr))
	}
	return string(out), err
}

// databaseFolder is a folder for a server that does not run as root.
func databaseFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cmdb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		err = os.Chown(dir, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// asNobody is a command line for a user other than root.
func asNobody(args ...string) (string, []string) {
	if os.Getuid() == 0 {
		args = append([]string{"setpriv", fmt.Sprint("--reuid=", nobody),
			fmt.Sprint("--regid=", nobody), "--clear-groups"}, args...)
	}
	return args[0], args[1:]
}

// mariaDB is a real MariaDB, with the tables of Salt's returner mysql.
type mariaDB struct {
	e2e.Process
	addr, dir string
}

// mysqlTables are the tables that the returner needs.
const mysqlTables = "CREATE DATABASE salt CHARACTER SET utf8mb4; USE salt;" +
	"CREATE TABLE jids (jid varchar(255) NOT NULL, `load` mediumtext NOT NULL, UNIQUE KEY jid (jid));" +
	"CREATE TABLE salt_returns (fun varchar(50) NOT NULL, jid varchar(255) NOT NULL," +
	" `return` mediumtext NOT NULL, id varchar(255) NOT NULL, success varchar(10) NOT NULL," +
	" full_ret mediumtext NOT NULL, alter_time timestamp DEFAULT current_timestamp);" +
	"CREATE TABLE salt_events (id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, tag varchar(255) NOT NULL," +
	" data mediumtext NOT NULL, alter_time timestamp DEFAULT current_timestamp," +
	" master_id varchar(255) NOT NULL);"

// newMariaDB makes a server with the returner's tables. It does not run yet.
func newMariaDB(t testing.TB) *mariaDB {
	t.Helper()
	if _, err := exec.LookPath("mariadb-install-db"); err != nil {
		t.Skip("needs MariaDB: apt-get install mariadb-server")
	}
	needsPython(t, "pymysql")
	m := &mariaDB{addr: e2e.FreeBase(t, 1).Master(1), dir: databaseFolder(t)}
	m.Process = e2e.Process{Name: "mariadbd", Output: filepath.Join(e2e.Folder(t), "output")}
	e2e.ShowOnFailure(t, m.Output)
	path, args := asNobody("mariadb-install-db", "--no-defaults", "--datadir="+m.data(),
		"--skip-test-db")
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v: %s", err, out)
	}
	m.run(t)
	if _, err := m.ask("", mysqlTables); err != nil {
		t.Fatal(err)
	}
	m.Stop(t, 20*time.Second)
	return m
}

func (m *mariaDB) data() string { return filepath.Join(m.dir, "data") }

func (m *mariaDB) run(t testing.TB) {
	t.Helper()
	path, args := asNobody("/usr/sbin/mariadbd", "--no-defaults", "--datadir="+m.data(),
		"--bind-address="+m.addr, "--port=3306", "--socket="+filepath.Join(m.dir, "socket"),
		"--pid-file="+filepath.Join(m.dir, "pid"), "--skip-grant-tables",
		"--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=2")
	m.Start(t, path, args...)
	e2e.Eventually(t, 60*time.Second, "the database", func() error {
		_, err := m.ask("", "SELECT 1")
		return err
	})
}

// ask returns a line for each row.
func (m *mariaDB) ask(name, sql string) (string, error) {
	return ask("mariadb", "--no-defaults", "-h", m.addr, "-P", "3306", "--protocol=tcp",
		"--connect-timeout=5", "--default-character-set=utf8mb4", "-u", "salt", "-NBre", sql, name)
}

func (m *mariaDB) options() string {
	return fmt.Sprintf("mysql.host: %s\nmysql.user: salt\nmysql.pass: none\nmysql.db: salt\n"+
		"mysql.port: 3306\n", m.addr)
}

func (m *mariaDB) rows() ([]string, error) {
	out, err := m.ask("salt", "SELECT CONCAT('load ', jid, ' ', `load`) FROM jids ORDER BY jid;"+
		"SELECT CONCAT(fun, ' ', jid, ' ', `return`, ' ', id, ' ', success, ' ', full_ret)"+
		" FROM salt_returns ORDER BY jid, id")
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n"), err
}

// redisServer is a real Redis.
type redisServer struct {
	e2e.Process
	addr, dir string
}

// newRedis makes a server that does not run yet.
func newRedis(t testing.TB) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("needs Redis: apt-get install redis-server")
	}
	needsPython(t, "redis")
	r := &redisServer{addr: e2e.FreeBase(t, 1).Master(1), dir: databaseFolder(t)}
	r.Process = e2e.Process{Name: "redis-server", Output: filepath.Join(e2e.Folder(t), "output")}
	e2e.ShowOnFailure(t, r.Output)
	return r
}

func (r *redisServer) run(t testing.TB) {
	t.Helper()
	path, args := asNobody("redis-server", "--bind", r.addr, "--port", "6379", "--dir", r.dir,
		"--appendonly", "yes", "--save", "", "--daemonize", "no")
	r.Start(t, path, args...)
	e2e.Eventually(t, 30*time.Second, "the database", func() error {
		out, err := r.ask("PING")
		if err == nil && strings.TrimSpace(out) != "PONG" {
			err = errors.New(out)
		}
		return err
	})
}

func (r *redisServer) ask(args ...string) (string, error) {
	return ask("redis-cli", append([]string{"-h", r.addr, "-p", "6379", "--raw", "-e"}, args...)...)
}

func (r *redisServer) options() string {
	return fmt.Sprintf("redis.host: %s\nredis.port: 6379\nredis.db: '0'\n", r.addr)
}

func (r *redisServer) rows() ([]string, error) {
	out, err := r.ask("KEYS", "*")
	var loads, returns []string
	keys := strings.Fields(out)
	slices.Sort(keys)
	for _, key := range keys {
		kind, jid, _ := strings.Cut(key, ":")
		switch {
		case err != nil:
		case kind == "load":
			out, err = r.ask("GET", key)
			loads = append(loads, "load "+jid+" "+strings.TrimSuffix(out, "\n"))
		case kind == "ret":
			out, err = r.ask("HGETALL", key)
			field := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			for i := 0; i+1 < len(field); i += 2 {
				var ret struct{ Fun any } // a list if there are several functions
				if err := json.Unmarshal([]byte(field[i+1]), &ret); err != nil {
					return nil, fmt.Errorf("%s: %w", key, err)
				}
				returns = append(returns, fmt.Sprintf("%v %s %s %s", ret.Fun, jid, field[i], field[i+1]))
			}
		}
	}
	return append(loads, returns...), err
}

// needsPython skips a test whose returner lacks its library.
func needsPython(t testing.TB, module string) {
	t.Helper()
	python := filepath.Join(e2e.Venvs(t), "salt-"+olderReference, "bin", "python3")
	if err := exec.Command(python, "-c", "import "+module).Run(); err != nil {
		t.Skipf("needs the Python module %s with Salt %s: tools/scripts/venvs.sh", module,
			olderReference)
	}
}

// jobRow is a row of a job or a return: its function or "load", and the job id.
var jobRow = regexp.MustCompile(`^(\[.*?\]|\S+) (20\d{18}) `)

// onlyOrders keeps the rows of the test's orders: from the first job of test.arg on, without
// requests that a minion or master makes by itself.
func onlyOrders(rows []string) (kept []string, failing string) {
	first := ""
	for _, row := range rows {
		if m := jobRow.FindStringSubmatch(row); m != nil && m[1] == "test.arg" &&
			(first == "" || m[2] < first) {
			first = m[2]
		}
	}
	for _, row := range rows {
		m := jobRow.FindStringSubmatch(row)
		if m == nil || m[2] < first || strings.Contains(row, `"fun": "saltutil.`) ||
			strings.HasPrefix(row, "saltutil.") || strings.HasPrefix(row, "runner.jobs.") {
			continue
		}
		if m[1] == "test.false" {
			failing = m[2]
		}
		kept = append(kept, row)
	}
	return kept, failing
}

// cacheOptions are those of a master that keeps jobs with a returner.
func cacheOptions(returner string) string {
	return "master_job_cache: " + returner + "\nauto_accept: True\ntimeout: 15\n"
}

// databaseRows has a master of a kind keep its jobs in a database. It returns the rows, and what
// salt-run reads from them.
func databaseRows(t *testing.T, kind, returner string, db database) []string {
	t.Helper()
	r := newReturningOf(t, kind, olderReference, cacheOptions(returner)+db.options())
	db.run(t)
	r.Run(t)
	e2e.Eventually(t, 60*time.Second, "the master", r.Ready)
	r.meet(t)
	r.orders(t)
	var rows []string
	e2e.Eventually(t, 60*time.Second, "the last row", func() error {
		var err error
		rows, err = db.rows()
		for _, kind := range []string{"load ", "test.echo "} { // they are read one after the other
			if err == nil && !slices.ContainsFunc(rows, func(row string) bool {
				return strings.HasPrefix(row, kind) && strings.Contains(row, "the end")
			}) {
				err = fmt.Errorf("of %d rows none is the last that begins with %s", len(rows), kind)
			}
		}
		return err
	})
	rows, failing := onlyOrders(rows)
	for _, more := range [][]string{nil, {"ext_source=" + returner}} {
		shown := r.Runner(t, append([]string{"jobs.lookup_jid", failing, "--out=json"}, more...)...)
		rows = append(rows, shown.Stdout)
	}
	masked := r.masked(strings.Join(rows, "\n"))
	// Times of 3008, like ours, have a zone.
	return strings.Split(strings.ReplaceAll(masked, "STAMP+00:00", "STAMP"), "\n")
}

// TestOtherDatabases compares what master_job_cache writes to a real MariaDB and a real Redis with
// what Salt's own master writes. Salt 3008 no longer has either returner.
func TestOtherDatabases(t *testing.T) {
	t.Parallel()
	for returner, make := range map[string]func(testing.TB) database{
		"mysql": func(t testing.TB) database { return newMariaDB(t) },
		"redis": func(t testing.TB) database { return newRedis(t) },
	} {
		t.Run(returner, func(t *testing.T) {
			t.Parallel()
			kept := answers.Open[[]string](t, answersOf("jobs_"+returner), olderReference, cacheOptions(returner),
				*update)
			var salts func() []string
			if live() {
				salts = func() []string { return databaseRows(t, "salt", returner, make(t)) }
			}
			want := kept.Salt(t, kept.Turn(), "rows", salts)
			if got := databaseRows(t, "ours", returner, make(t)); !slices.Equal(got, want) {
				t.Errorf("ours\n%s\nSalt's\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// eventsToMySQL are the options of a master that writes events to MariaDB: in queues, filtered.
const eventsToMySQL = `event_return: [mysql]
event_return_queue: 3
event_return_whitelist: ['site/*']
event_return_blacklist: ['site/unwanted']
auto_accept: True
timeout: 15
`

// mysqlEvents are the rows of a master's events in MariaDB.
func mysqlEvents(t *testing.T, kind string) []string {
	t.Helper()
	db := newMariaDB(t)
	r := newReturningOf(t, kind, olderReference, eventsToMySQL+db.options())
	db.run(t)
	r.Run(t)
	e2e.Eventually(t, 60*time.Second, "the master", r.Ready)
	r.meet(t)
	r.send(t, "site/types", `{n: 1, float: 1.5, big: 12345678901, yes: true, none: null, `+
		`text: "äöü\t\"", list: [1, [2, {x: y}]], map: {a: {b: c}}, empty: {}}`)
	for i, tag := range []string{"site/unwanted", "other/tag", "site/a", "site/b", "site/c",
		"site/d", "site/end"} {
		r.send(t, tag, fmt.Sprintf("{n: %d}", i))
	}
	var rows string
	e2e.Eventually(t, 60*time.Second, "the last row", func() error {
		var err error
		rows, err = db.ask("salt", "SELECT CONCAT(tag, ' ', data, ' ', master_id) FROM salt_events ORDER BY id")
		if err == nil && !strings.Contains(rows, "site/end ") {
			err = fmt.Errorf("only %s", rows)
		}
		return err
	})
	return strings.Split(strings.ReplaceAll(r.masked(rows), "STAMP+00:00", "STAMP"), "\n")
}

// TestMariaDBEvents compares the rows of event_return in a real MariaDB with those of Salt's own
// master.
func TestMariaDBEvents(t *testing.T) {
	t.Parallel()
	kept := answers.Open[[]string](t, answersOf("events_mysql"), olderReference, olderReference+eventsToMySQL, *update)
	var ask func() []string
	if live() {
		ask = func() []string { return mysqlEvents(t, "salt") }
	}
	want := kept.Salt(t, kept.Turn(), "rows", ask)
	if got := mysqlEvents(t, "ours"); !slices.Equal(got, want) {
		t.Errorf("ours\n%s\nSalt's\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestMariaDBAway: a return for a database that is down waits on disk, even while the master is
// killed and starts again. Salt's master loses it.
func TestMariaDBAway(t *testing.T) {
	t.Parallel()
	db := newMariaDB(t)
	db.run(t)
	r := newReturningOf(t, "ours", olderReference,
		"master_job_cache: mysql\nauto_accept: True\ntimeout: 15\n"+db.options())
	r.Run(t)
	e2e.Eventually(t, 60*time.Second, "the master", r.Ready)
	r.meet(t)
	away := filepath.Join(t.TempDir(), "away") // the job ends when the database is
	r.Salt(t, "--async", "web", "cmd.run", "while [ ! -e "+away+" ]; do sleep 0.2; done; echo came")
	has := func(row ...string) func() error {
		return func() error {
			rows, err := db.rows()
			if err == nil && !slices.ContainsFunc(rows, func(s string) bool {
				return strings.HasPrefix(s, row[0]) && strings.Contains(s, row[1])
			}) {
				err = fmt.Errorf("no %s in %d rows", row, len(rows))
			}
			return err
		}
	}
	e2e.Eventually(t, 60*time.Second, "the job", has("load ", `"cmd.run"`))
	db.Stop(t, 20*time.Second)
	if err := os.WriteFile(away, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e2e.Eventually(t, 60*time.Second, "the return that nobody takes", func() error {
		text, err := os.ReadFile(r.Log)
		if err == nil && !strings.Contains(string(text), "returner takes no items") {
			err = errors.New("not logged")
		}
		return err
	})
	r.Kill(t)
	r.Run(t)
	e2e.Eventually(t, 60*time.Second, "the master", r.Ready)
	db.run(t)
	e2e.Eventually(t, 2*time.Minute, "the return", has("cmd.run ", "came"))
}
