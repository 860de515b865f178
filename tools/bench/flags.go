package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

const usageText = `Usage: clustermaster bench --master HOST[:PORT] [options]
       clustermaster bench --self [options]
       clustermaster bench --grow [options]
       clustermaster bench --compare VENV [options]

Measures Salt masters from the minions' side: requests per second and latencies. It prints
figures; nothing passes or fails.

With --master it measures any master, ours or Salt's; it needs to accept the minions
bench1, bench2, ... (auto_accept: True, or salt-key -a 'bench*'). With --self it starts our own
masters on loopback addresses, one and then three, and also measures their memory and their start.
With --grow it measures how cost grows with minions, masters and the size of jobs. With --compare it
starts Salt's own masters and ours in turns, alone and as clusters of three. Connections are spread
over all masters, without a balancer. TMPDIR says where the started masters have their folders, for
a look at another disk.

Requests:
%s
Options:
%s
Examples:
  clustermaster bench --self
  clustermaster bench --self --quick --json figures.json
  clustermaster bench --self --sizes 1,3,5,7 --only return,minion_event
  clustermaster bench --grow --json growth.json
  clustermaster bench --grow --parts minions --fleet 1,100,5000
  clustermaster bench --compare .build/venvs/salt-3008.3 --json comparison.json
  clustermaster bench --master salt.example.net --minions 500 --workers 64 --seconds 20
  clustermaster bench --master 10.0.0.1,10.0.0.2,10.0.0.3 --only return,minion_event --rate 50%%
  clustermaster bench --master 127.0.0.1 --only serve_file --file apache/init.sls
`

// flags are the options of the command line.
type flags struct {
	masters                       []string
	minions, workers, rounds      int
	fleets, jobSizes, sizes       []int
	parts                         []string
	seconds, warmup               float64
	rate, only, file, env, prefix string
	keys, json, binary, compare   string
	self, grow, quick             bool
}

func parseFlags(args []string) (flags, *pflag.FlagSet, error) {
	var f flags
	fs := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetOutput(io.Discard)
	fs.StringSliceVar(&f.masters, "master", nil,
		"measure the master at `HOST[:PORT]` (request port, default 4506); several are measured together, connections spread over them")
	fs.BoolVar(&f.self, "self", false, "start our own masters and measure them")
	fs.BoolVar(&f.grow, "grow", false, "start our own masters and measure how cost grows")
	fs.StringSliceVar(&f.parts, "parts", growParts, "with --grow: what grows")
	fs.IntSliceVar(&f.jobSizes, "job-sizes", []int{1, 10, 100, 1000},
		"with --grow, sizes: `KB` of a job and of each of its returns, 1,000 bytes each")
	fs.StringVar(&f.compare, "compare", "",
		"measure Salt's own master, installed in the virtual environment `VENV`, and ours in turns")
	fs.IntSliceVar(&f.sizes, "sizes", []int{1, 3},
		"with --self, --grow and --compare: numbers of masters to measure (with --grow default 1,3,5,7)")
	fs.IntVar(&f.rounds, "rounds", 3, "with --compare: how often each is measured")
	fs.BoolVar(&f.quick, "quick", false,
		"shorter and smaller, for a first look (with --self about 40 s)")
	fs.IntVar(&f.minions, "minions", 100, "number of minions, each with its own id and session key")
	fs.IntVar(&f.workers, "workers", 32, "number of connections; the minions take turns on them")
	fs.Float64Var(&f.seconds, "seconds", 5, "measured time of each request")
	fs.Float64Var(&f.warmup, "warmup", 1, "seconds before that")
	fs.StringVar(&f.rate, "rate", "",
		"open loop: requests per second, or a share such as 50% of what the closed loop reached")
	fs.StringVar(&f.only, "only", "",
		"measure only the `REQUESTS` of this list, such as auth,return")
	fs.StringVar(&f.file, "file", "",
		"with --master: file for _file_hash and _serve_file, a `PATH` below file_roots; {N} in "+
			"it stands for the numbers 1 to N, all in turn")
	fs.StringVar(&f.env, "saltenv", "base", "with --master: environment of file requests")
	fs.StringVar(&f.prefix, "prefix", "bench", "of the minions' ids")
	fs.StringVar(&f.keys, "keys", "",
		"with --master: `FILE` that keeps the minions' private key from run to run (default "+
			"below the user's cache folder)")
	fs.IntSliceVar(&f.fleets, "fleet", []int{100},
		"with --self, --grow and --compare: numbers of simulated minions that listen and answer, rising (default with --compare 1000,10000, with --grow 1,10,100,1000,10000); 0 for none")
	fs.StringVar(&f.json, "json", "", "also write everything to `FILE`")
	fs.StringVar(&f.binary, "binary", "", "the `PROGRAM` to start as our own master (default this one)")
	err := fs.Parse(args)
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
	for _, given := range []bool{f.self, f.grow, f.compare != "", len(f.masters) > 0} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("give one of --master HOST, --self, --grow and --compare VENV")
	}
	for i, m := range f.masters {
		addr, err := masterAddr(m)
		if err != nil {
			return err
		}
		f.masters[i] = addr
	}
	asked := fs.Changed("workers")
	for _, preset := range []struct {
		given bool
		to    map[string]string // of options that the command line lacks, and no earlier preset has
	}{
		{f.quick, map[string]string{"seconds": "1", "warmup": "0.3", "minions": "32",
			"workers": "16", "fleet": "30"}},
		{f.compare != "", map[string]string{"seconds": "2.5", "warmup": "0.5",
			"fleet": "1000,10000"}},
		{f.grow, map[string]string{"seconds": "2", "warmup": "0.5", "sizes": "1,3,5,7",
			"fleet": "1,10,100,1000,10000"}},
	} {
		for name, v := range preset.to {
			if preset.given && !fs.Changed(name) {
				if err := fs.Set(name, v); err != nil {
					return err
				}
			}
		}
	}
	if !asked {
		f.workers = min(f.workers, f.minions)
	}
	for _, c := range []struct {
		name        string
		v, min, max float64
	}{
		{"minions", float64(f.minions), 1, 100_000}, {"seconds", f.seconds, 0.1, 86_400},
		{"workers", float64(f.workers), 1, float64(f.minions)}, {"warmup", f.warmup, 0, 3600},
		{"rounds", float64(f.rounds), 1, 99},
	} {
		if !(c.v >= c.min && c.v <= c.max) {
			return fmt.Errorf("--%s %v: want %v to %v", c.name, c.v, c.min, c.max)
		}
	}
	for _, p := range f.parts {
		if !slices.Contains(growParts, p) {
			return fmt.Errorf("--parts %s: want some of %s", p, strings.Join(growParts, ","))
		}
	}
	for _, l := range []struct {
		name     string
		list     []int
		min, max int
	}{{"job-sizes", f.jobSizes, 1, 1000}, {"sizes", f.sizes, 1, 9}, {"fleet", f.fleets, 0, 10_000}} {
		for i, n := range l.list {
			if n < l.min || n > l.max || i > 0 && n <= l.list[i-1] {
				return fmt.Errorf("--%s %d: want %d to %d, each more than the one before", l.name, n,
					l.min, l.max)
			}
		}
	}
	f.fleets = slices.DeleteFunc(f.fleets, func(n int) bool { return n == 0 })
	return nil
}

// masterAddr adds the port to an address without one.
func masterAddr(s string) (string, error) {
	s = strings.TrimSpace(s)
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), strconv.Itoa(reqPort)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || host == "" ||
		strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("--master %q: want HOST, HOST:PORT or [ADDRESS]:PORT", s)
	}
	return net.JoinHostPort(host, port), nil
}
