package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"clustermaster/config"
	"clustermaster/salt/cli"
	"clustermaster/serve/checkup"
)

const usage = `Usage: clustermaster doctor [--all] [options]

Checks this machine for the master of its configuration: ports, names, other masters, clock, disk, limits,
memory, folders, roots, certificates. With a running master also what is wrong in its cluster.
It changes nothing.

Options:
%s
Exit codes: 0 nothing is wrong, 1 there are errors, 3 there are warnings only, 64 the command line is wrong.

Examples:
  clustermaster doctor
  clustermaster doctor --all --balancer salt.example.com
  clustermaster doctor --json | jq '.masters[].findings[] | select(.level == "error")'
`

// Exit codes.
const (
	exitGood     = 0
	exitErrors   = 1
	exitWarnings = 3
	exitUsage    = 64
)

// page holds all findings.
type page struct {
	Masters []place           `json:"masters"`
	Cluster []checkup.Finding `json:"cluster"` // not of a single master
}

// place is one master with its findings.
type place struct {
	Master   string            `json:"master"`
	Findings []checkup.Finding `json:"findings"`
}

// Command is clustermaster doctor.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	dir := fs.StringP("config-dir", "c", "", "folder of the file \"master\" (default /etc/salt)")
	all := fs.Bool("all", false,
		"have every master of the cluster check itself, and compare their configurations and roots")
	asJSON := fs.Bool("json", false, "write JSON")
	quiet := fs.BoolP("quiet", "q", false, "leave out what is as it should be")
	balancer := fs.String("balancer", "",
		"address or name of the balancer: try its ports as a minion does")
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, usage, fs.FlagUsages())
		return exitGood
	case err != nil:
		fmt.Fprintf(stderr, "clustermaster doctor: %v\n", err)
		return exitUsage
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "clustermaster doctor: it takes no argument %q\n", fs.Arg(0))
		return exitUsage
	}
	p := examine(ctx, *dir, *all, *balancer)
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		_ = enc.Encode(p) // if the pipe is closed, the reader wants no more
	} else {
		p.print(stdout, *quiet)
	}
	return p.code()
}

// examine makes all requested checks.
func examine(ctx context.Context, dir string, all bool, balancer string) page {
	o, warnings, err := config.Load(dir, os.Getenv)
	here := place{Master: "this machine", Findings: configured(o, err, warnings)}
	if err != nil {
		return page{Masters: []place{here}} // nothing else can be checked
	}
	here.Master = o.ID
	p := page{Masters: []place{here}}
	var health struct {
		Problems []string `json:"problems"`
	}
	_, err = cli.Query(ctx, os.Getenv, dir, &health, "cluster.health")
	running := err == nil
	switch {
	case errors.Is(err, cli.ErrDown):
		p.add(checkup.Finding{Check: "master", Level: checkup.Notice, Text: "no master runs here",
			Remedy: "systemctl start salt-master"})
	case err != nil:
		p.add(checkup.Finding{Check: "master", Level: checkup.Error, Text: err.Error()})
	default:
		for _, text := range health.Problems {
			p.Cluster = append(p.Cluster, checkup.Finding{Check: "cluster", Level: checkup.Error,
				Text: text})
		}
	}
	if running {
		p.ask(ctx, dir, all)
	} else {
		local := checkup.Local(ctx, o, false)
		if errors.As(err, new(*cli.NoRightsError)) { // a master may run and hold the ports
			local = slices.DeleteFunc(local, func(f checkup.Finding) bool { return f.Check == "ports" })
		}
		p.Masters[0].Findings = append(p.Masters[0].Findings, local...)
		if all {
			p.Cluster = append(p.Cluster, checkup.Finding{Check: "masters", Level: checkup.Error,
				Text:   "the other masters can't be asked without a master that runs here",
				Remedy: "start it, or run doctor --all on another master"})
		}
	}
	if balancer != "" {
		p.Cluster = append(p.Cluster, knock(ctx, balancer, o)...)
	}
	return p
}

func (p *page) add(f checkup.Finding) { p.Masters[0].Findings = append(p.Masters[0].Findings, f) }

// ask requests reports from the running master, or from all of them.
func (p *page) ask(ctx context.Context, dir string, all bool) {
	var answer struct {
		Reports string   `json:"reports"`
		Missing []string `json:"missing"`
	}
	var reports []checkup.Report
	_, err := cli.Query(ctx, os.Getenv, dir, &answer, "cluster.reports", fmt.Sprintf("all=%t", all))
	if err == nil {
		err = json.Unmarshal([]byte(answer.Reports), &reports)
	}
	if err != nil {
		p.add(checkup.Finding{Check: "master", Level: checkup.Error,
			Text: "the master does not report: " +
				err.Error(), Remedy: "restart it, so that it is of the release of this command"})
		return
	}
	for _, r := range reports {
		if r.Master == p.Masters[0].Master {
			p.Masters[0].Findings = append(p.Masters[0].Findings, r.Findings...)
			continue
		}
		p.Masters = append(p.Masters, place{Master: r.Master, Findings: r.Findings})
	}
	for _, id := range answer.Missing {
		p.Masters = append(p.Masters, place{Master: id, Findings: []checkup.Finding{{
			Check: "master", Level: checkup.Error, Text: "it gave no report",
			Remedy: "run clustermaster doctor there; a master of an older release gives none",
		}}})
	}
	p.Cluster = append(p.Cluster, checkup.Compare(reports)...)
}

// configured turns the problems of the options' loader into findings.
func configured(o *config.Options, err error, warnings []config.Warning) (found []checkup.Finding) {
	warn := func(text string) {
		found = append(found, checkup.Finding{Check: "configuration", Level: checkup.Warning, Text: text})
	}
	if err == nil {
		if open := o.OpenSecret(); open != "" {
			warn(open)
		}
		for _, text := range o.Unreadable() {
			warn(text)
		}
		if !o.HasFile() {
			warn(o.NoFile())
		}
	}
	for _, p := range config.Problems(err) {
		found = append(found, checkup.Finding{Check: "configuration", Level: checkup.Error,
			Text: p.Error(), Remedy: "change it; clustermaster config check reads it again"})
	}
	if err != nil && len(found) == 0 {
		found = append(found, checkup.Finding{Check: "configuration", Level: checkup.Error,
			Text: err.Error()})
	}
	for _, w := range warnings {
		level := checkup.Notice
		if w.Severe {
			level = checkup.Warning
		}
		found = append(found, checkup.Finding{Check: "configuration", Level: level,
			Text: w.String()})
	}
	if len(found) == 0 {
		found = append(found, checkup.Finding{Check: "configuration", Level: checkup.Good,
			Text: "every option that is set is in force"})
	}
	return found
}

// greetingTime bounds how long a port of the balancer may be silent.
const greetingTime = 5 * time.Second

// knock tries the minion ports of a balancer: ZeroMQ greets first, so a greeting shows that there
// is a master behind it.
func knock(ctx context.Context, host string, o *config.Options) (found []checkup.Finding) {
	for _, port := range []int{o.PublishPort, o.RetPort} {
		addr := net.JoinHostPort(strings.Trim(host, "[]"), fmt.Sprint(port))
		if err := greeted(ctx, addr); err != nil {
			found = append(found, checkup.Finding{Check: "balancer", Level: checkup.Error,
				Text:   fmt.Sprintf("%s: %v", addr, err),
				Remedy: "see which masters the balancer takes for ready (its health checks ask /readyz on port 4521), and let minions through to it"})
			continue
		}
		found = append(found, checkup.Finding{Check: "balancer", Level: checkup.Good,
			Text: "a master answers at " + addr})
	}
	return found
}

// greeted connects and waits for the first bytes of a ZMTP greeting.
func greeted(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	// Some endpoints wait for the other side's first bytes: the signature of ZMTP 3.
	signature := []byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3}
	if _, err := conn.Write(signature); err != nil {
		return fmt.Errorf("the connection is accepted and closed at once: no master is behind it: %w",
			err)
	}
	var got [10]byte
	if _, err := io.ReadFull(conn, got[:]); err != nil {
		return fmt.Errorf("the connection is accepted, but no master answers on it: %w", err)
	}
	if got[0] != 0xff || got[9] != 0x7f {
		return errors.New("something other than a Salt master answers")
	}
	return nil
}
