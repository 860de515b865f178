package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// Exit codes of the command.
const (
	exitGood  = 0
	exitBad   = 1  // something could not be measured
	exitUsage = 64 // EX_USAGE
)

// compareCommand repeats a comparison.
const compareCommand = "make bench-compare"

const usageText = `Usage: clustermaster bench --master HOST[:PORT] [options]
       clustermaster bench --self [options]
       clustermaster bench --compare VENV [options]

Measures Salt masters from the minions' side: requests per second and latencies. It prints
figures; nothing passes or fails.

With --master it measures any master, ours or Salt's; it needs to accept the minions
bench1, bench2, ... (auto_accept: True, or salt-key -a 'bench*'). With --self it starts our own
masters on loopback addresses, one and then three, and also measures their memory, their start
and the time from the leader's death until all minions answer. With --compare it starts Salt's own
masters and ours in turns, alone and as clusters of three behind HAProxy.

Requests:
%s
Options:
%s
Examples:
  clustermaster bench --self
  clustermaster bench --self --quick --json figures.json
  clustermaster bench --self --only return --profile profiles
  clustermaster bench --self --sizes 1 --minions 1000 --only file_list --fill 1000000
  clustermaster bench --self --sizes 1,3,5,7 --only return,minion_event
  clustermaster bench --compare .build/venvs/salt-3008.3 --docs docs
  clustermaster bench --master salt.example.net --minions 500 --workers 64 --seconds 20
  clustermaster bench --master 10.0.0.1,10.0.0.2,10.0.0.3 --only return,minion_event --rate 50%%
  clustermaster bench --master 127.0.0.1 --only serve_file --file apache/init.sls --pid $(cat /var/run/salt-master.pid)
`

// flags are the command line's.
type flags struct {
	masters                       []string
	minions, workers, fleet, pid  int
	fill                          int
	seconds, warmup               float64
	rate, only, file, env, prefix string
	keys, json, binary, dir       string
	profile, svg, compare, docs   string
	from                          string
	rounds                        int
	sizes                         []int
	self, quick                   bool
	set                           func(name string) bool
}

func parseFlags(args []string) (flags, *pflag.FlagSet, error) {
	var f flags
	fs := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	fs.StringSliceVar(&f.masters, "master", nil, "measure the master at `HOST[:PORT]` (request port, default 4506); several are measured together, connections spread over them")
	fs.BoolVar(&f.self, "self", false, "start our own masters and measure them")
	fs.StringVar(&f.compare, "compare", "", "measure Salt's own master, installed in the virtual environment `VENV`, and ours in turns")
	fs.IntSliceVar(&f.sizes, "sizes", []int{1, 3}, "with --self and --compare: numbers of masters to measure")
	fs.IntVar(&f.rounds, "rounds", 3, "with --compare: how often each is measured")
	fs.StringVar(&f.docs, "docs", "", "with --compare: write performance.md and its plots into `DIR`")
	fs.StringVar(&f.from, "from", "", "with --docs: write them from the JSON `FILE` of an earlier comparison")
	fs.StringVar(&f.svg, "svg", "", "also draw the latencies into `FILE`")
	fs.BoolVar(&f.quick, "quick", false, "shorter and smaller, for a first look (with --self about 40 s)")
	fs.IntVar(&f.minions, "minions", 100, "number of minions, each with its own id and session key")
	fs.IntVar(&f.workers, "workers", 32, "number of connections; the minions take turns on them")
	fs.Float64Var(&f.seconds, "seconds", 5, "measured time of each request")
	fs.Float64Var(&f.warmup, "warmup", 1, "seconds before that")
	fs.StringVar(&f.rate, "rate", "", "open loop: requests per second, or a share such as 50% of what the closed loop reached")
	fs.StringVar(&f.only, "only", "", "measure only the `REQUESTS` of this list, such as auth,return")
	fs.StringVar(&f.file, "file", "", "file for _file_hash and _serve_file, a `PATH` below file_roots")
	fs.StringVar(&f.env, "saltenv", "base", "environment of file requests")
	fs.StringVar(&f.prefix, "prefix", "bench", "of the minions' ids")
	fs.StringVar(&f.keys, "keys", "", "with --master: `FILE` that keeps the minions' private keys from run to run (default below the user's cache folder)")
	fs.IntVar(&f.pid, "pid", 0, "with --master: also measure memory (PSS) and CPU of this local process and its descendants")
	fs.IntVar(&f.fleet, "fleet", 100, "with --self and --compare: number of simulated minions that listen and answer (with --compare default 1000, 0 for none)")
	fs.StringVar(&f.json, "json", "", "also write everything to `FILE`")
	fs.StringVar(&f.binary, "binary", "", "with --self: the `PROGRAM` to start (default this one)")
	fs.IntVar(&f.fill, "fill", 0, "with --self: put so many returns into the job cache, then measure disk, files and look-ups")
	fs.StringVar(&f.profile, "profile", "", "with --self: `DIR` for profiles of the masters (CPU, allocations, blocking, mutexes), for go tool pprof")
	fs.StringVar(&f.dir, "dir", "", "with --self: where the masters' folders are made, for a look at another disk (default the system's temporary folder)")
	err := fs.Parse(args)
	f.set = func(name string) bool { return fs.Changed(name) }
	if err == nil {
		err = f.check(fs)
	}
	return f, fs, err
}

func (f *flags) check(fs *pflag.FlagSet) error {
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	ways := 0
	for _, given := range []bool{f.self, f.compare != "", f.from != "", len(f.masters) > 0} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("give one of --master HOST, --self, --compare VENV and --from FILE")
	}
	if f.from != "" && f.docs == "" {
		return errors.New("--from needs --docs DIR")
	}
	least := 1
	if f.compare != "" {
		least = 0
		f.defaults(map[string]func(){"fleet": func() { f.fleet = 1000 }, "seconds": func() { f.seconds = 3 }})
	}
	for i, m := range f.masters {
		addr, err := masterAddr(m)
		if err != nil {
			return err
		}
		f.masters[i] = addr
	}
	if f.quick {
		f.defaults(map[string]func(){
			"seconds": func() { f.seconds = 1 }, "warmup": func() { f.warmup = 0.3 },
			"minions": func() { f.minions = 32 }, "workers": func() { f.workers = 16 }, "fleet": func() { f.fleet = 30 },
		})
	}
	if !f.set("workers") {
		f.workers = min(f.workers, f.minions)
	}
	for _, c := range []struct {
		name string
		v    float64
		min  float64
		max  float64
	}{
		{"minions", float64(f.minions), 1, 100_000}, {"workers", float64(f.workers), 1, float64(f.minions)}, {"seconds", f.seconds, 0.1, 86_400},
		{"warmup", f.warmup, 0, 3600}, {"fleet", float64(f.fleet), float64(least), 10_000}, {"rounds", float64(f.rounds), 1, 99},
		{"fill", float64(f.fill), 0, 100_000_000}, {"pid", float64(f.pid), 0, 1 << 30},
	} {
		if !(c.v >= c.min && c.v <= c.max) {
			return fmt.Errorf("--%s %v: want %v to %v", c.name, c.v, c.min, c.max)
		}
	}
	for _, n := range f.sizes {
		if n < 1 || n > 9 {
			return fmt.Errorf("--sizes %d: want 1 to 9", n)
		}
	}
	return nil
}

// defaults sets what the command line didn't.
func (f *flags) defaults(to map[string]func()) {
	for name, set := range to {
		if !f.set(name) {
			set()
		}
	}
}

// masterAddr adds the port to an address that has none.
func masterAddr(s string) (string, error) {
	s = strings.TrimSpace(s)
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), strconv.Itoa(reqPort)
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", fmt.Errorf("--master %q: want HOST, HOST:PORT or [ADDRESS]:PORT", s)
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" {
		return "", fmt.Errorf("--master %q: want HOST, HOST:PORT or [ADDRESS]:PORT", s)
	}
	return net.JoinHostPort(host, port), nil
}

// Command is `clustermaster bench`. It returns the exit code: 0, or 1 when something could not be
// measured, or 64 for a wrong command line. Ctrl-C ends it, and what it started.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, fs, err := parseFlags(args)
	if errors.Is(err, pflag.ErrHelp) {
		var list strings.Builder
		for _, k := range kinds() {
			fmt.Fprintf(&list, "  %-15s %s\n", k.name, k.about)
		}
		fmt.Fprintf(stdout, usageText, list.String(), fs.FlagUsagesWrapped(100))
		return exitGood
	}
	var b *bencher
	if err == nil {
		b, err = newBencher(f, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster bench: %v\nSee clustermaster bench --help.\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r := &Report{Made: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(), LoadAverage: thisLoad()}
	err = b.run(ctx, f, r)
	b.progress.clear()
	if f.json != "" && len(r.Columns) > 0 {
		err = errors.Join(err, r.write(f.json))
	}
	if f.svg != "" && len(r.Columns) > 0 {
		err = errors.Join(err, os.WriteFile(f.svg, r.latencies().SVG(), 0o644))
	}
	if err != nil {
		fmt.Fprintf(stderr, "clustermaster bench: %v\n", err)
		return exitBad
	}
	for _, c := range r.Columns {
		for i := range c.Loads {
			if c.Loads[i].Answered == 0 {
				return exitBad
			}
		}
	}
	return exitGood
}

func newBencher(f flags, stdout, stderr io.Writer) (*bencher, error) {
	file := f.file
	if f.self || f.compare != "" {
		file = benchFile
	}
	b := &bencher{out: stdout, progress: newProgress(stderr)}
	var err error
	if b.plan.kinds, err = choose(f.only, file); err != nil {
		return nil, err
	}
	if f.self && f.rate == "" {
		// Latencies at half of the throughput say more of a day's work than those at the limit.
		f.rate, b.plan.openFor = "50%", []string{"_return"}
		if !f.quick {
			b.plan.openFor = append(b.plan.openFor, "_minion_event")
		}
	}
	if b.plan.rate, err = parseRate(f.rate); err != nil {
		return nil, err
	}
	b.plan.length = time.Duration(f.seconds * float64(time.Second))
	b.plan.warmup = time.Duration(f.warmup * float64(time.Second))
	return b, nil
}

func (b *bencher) run(ctx context.Context, f flags, r *Report) error {
	if f.from != "" {
		old, err := readReport(f.from)
		if err == nil && len(old.Products) != 2 {
			err = fmt.Errorf("read report: %s is not of a comparison", f.from)
		}
		if err != nil {
			return err
		}
		return old.writePerformance(f.docs, compareCommand)
	}
	b.say("%s", r.Machine)
	b.progress.show("make %d keys", poolKeys)
	var err error
	if f.self || f.compare != "" {
		if b.keys, err = newKeys(poolKeys); err != nil {
			return err
		}
	}
	if f.compare != "" {
		p := comparePlan{program: f.binary, venv: f.compare, dir: f.dir, rounds: f.rounds, masters: f.sizes,
			minions: f.minions, workers: f.workers, fleet: f.fleet}
		if err := b.compare(ctx, p, r); err != nil {
			return err
		}
		if f.docs != "" {
			return r.writePerformance(f.docs, compareCommand)
		}
		_, err := io.WriteString(b.out, "\n"+r.performance("clustermaster bench --compare "+f.compare))
		return err
	}
	if f.self {
		s := selfPlan{program: f.binary, dir: f.dir, masters: f.sizes, minions: f.minions, workers: f.workers, fleet: f.fleet, profile: f.profile, fill: f.fill}
		if err := b.self(ctx, s, r); err != nil {
			return err
		}
		printSummary(b.out, r)
		return nil
	}
	if f.keys == "" {
		if f.keys, err = keyFile(); err != nil {
			return err
		}
	}
	if b.keys, err = loadKeys(f.keys); err != nil {
		return err
	}
	return b.remote(ctx, f, r)
}

// remote measures the masters of --master.
func (b *bencher) remote(ctx context.Context, f flags, r *Report) error {
	c := Column{Name: "master", Masters: f.masters, Minions: f.minions, Workers: f.workers}
	var pids []int
	var sampled func()
	var peak int64
	if f.pid > 0 {
		idle, err := pss(f.pid)
		if err != nil {
			return err
		}
		c.addMemory("memory (PSS), before", []int64{idle})
		pids = []int{f.pid}
		sampled = func() {
			if n, err := pss(f.pid); err == nil {
				peak = max(peak, n)
			}
		}
	}
	g, err := b.connect(ctx, Crowd{Masters: f.masters, Minions: f.minions, Workers: f.workers, Prefix: f.prefix, SaltEnv: f.env, File: f.file})
	if err != nil {
		return err
	}
	defer g.Close()
	c.Loads, err = b.loads(ctx, g, pids, sampled)
	if peak > 0 {
		c.addMemory("memory (PSS), under load", []int64{peak})
	}
	r.Columns = append(r.Columns, c)
	b.progress.clear()
	printColumn(b.out, c)
	return err
}
