package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"clustermaster/salt/gather"
	"clustermaster/serve/operator"
	"clustermaster/tools/simminion"
)

// product is a master's program: ours, or Salt's own.
type product struct {
	name string   // as tables show it
	argv []string // starts a master in the foreground; -c and its folder follow
	// options are lines of configuration for this product.
	options string
	// sharedKeys: the masters of a cluster share one cluster_pki_dir, and identify each other by
	// address, which is also their id.
	sharedKeys bool
	// compared: the product is measured for a comparison, within what the other one can do.
	compared bool
	ready    func(ctx context.Context, m *masterProcess) bool
	// ping publishes a test.ping and returns the number of answers, and the time from the
	// publication to the last one.
	ping func(ctx context.Context, m *masterProcess, p ping) (answered int, took time.Duration,
		err error)
}

// ping is a test.ping of simulated minions.
type ping struct {
	tgt, tgtType string
	minions      int // targeted
}

// timeout is how long the client waits.
func (p ping) timeout() time.Duration {
	return 15*time.Second + time.Duration(p.minions)*5*time.Millisecond
}

// clustermaster is our own product; its readiness is /readyz.
func clustermaster(program string) product {
	return product{name: "clustermaster", argv: []string{program, "salt-master"}, ready: readyz,
		ping: func(ctx context.Context, m *masterProcess, p ping) (int, time.Duration, error) {
			return p.publish(ctx, m, "test.ping", nil, func(gather.Return) bool { return true })
		}}
}

// saltProduct is Salt's own master from a virtual environment salt-RELEASE; it is ready when it
// answers a minion.
func saltProduct(venv string, key *simminion.Key) (product, error) {
	program := filepath.Join(venv, "bin", "salt-master")
	if _, err := os.Stat(program); err != nil {
		return product{}, fmt.Errorf("find Salt's own master: %w; make venvs installs it", err)
	}
	release := strings.TrimPrefix(filepath.Base(venv), "salt-")
	return product{
		name: "Salt " + release, argv: []string{program}, sharedKeys: true, compared: true,
		options: "enable_fqdns_grains: false\n",
		ready:   answers(key),
		ping: func(ctx context.Context, m *masterProcess, p ping) (int, time.Duration, error) {
			return clientPing(ctx, filepath.Join(venv, "bin", "python"), m, p)
		},
	}, nil
}

// readyz asks /readyz.
func readyz(ctx context.Context, m *masterProcess) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://%s:%d/readyz", m.host, healthPort), nil)
	if err != nil {
		return false
	}
	client := http.Client{Timeout: RequestPatience}
	r, err := client.Do(req)
	if err != nil {
		return false
	}
	r.Body.Close()
	return r.StatusCode == http.StatusOK
}

// answers tries the sign-in of a minion and a request: ports may be open before a master answers,
// and a member of Salt's clusters signs minions in before it serves them.
func answers(key *simminion.Key) func(context.Context, *masterProcess) bool {
	return func(ctx context.Context, m *masterProcess) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		l := line{addr: m.requests()}
		defer l.close()
		return sendFileList(ctx, newSession("await", key), &l, &job{saltenv: "base"}) == nil
	}
}

// publish orders a job from our master. It returns the number of correct returns, and the time
// until the last.
func (p ping) publish(ctx context.Context, m *masterProcess, fun string, args []any,
	right func(gather.Return) bool) (answered int, took time.Duration, err error) {
	client, err := operator.Dial(ctx, filepath.Join(m.dir, sockFolder))
	if err != nil {
		return 0, 0, fmt.Errorf("reach %s: %w", m.id, err)
	}
	defer client.Close()
	start := time.Now()
	_, err = gather.Run(ctx, client, gather.Publish{Tgt: p.tgt, TgtType: p.tgtType, Fun: fun,
		Arg: args, User: "root"}, gather.Options{Timeout: p.timeout()},
		func(_ string, r gather.Return) {
			if right(r) {
				answered++
				took = time.Since(start)
			}
		})
	if err != nil {
		err = fmt.Errorf("%s through %s: %w", fun, m.id, err)
	}
	return answered, took, err
}

//go:embed ping.py
var pingScript string

// clientPing publishes through Salt's own LocalClient. Starting that first is not part of the time.
func clientPing(ctx context.Context, python string, m *masterProcess, p ping) (answered int,
	took time.Duration, err error) {
	cmd := exec.CommandContext(ctx, python, "-c", pingScript, filepath.Join(m.dir, "master"), p.tgt,
		p.tgtType, fmt.Sprint(p.timeout().Seconds()))
	out, err := cmd.Output()
	if err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) && len(ended.Stderr) > 0 {
			err = fmt.Errorf("%w: %s", err, lastLine(ended.Stderr))
		}
		return 0, 0, fmt.Errorf("ping through %s: %w", m.id, err)
	}
	var figures [2]float64
	if err := json.Unmarshal(out, &figures); err != nil {
		return 0, 0, fmt.Errorf("ping through %s: read %.60q: %w", m.id, out, err)
	}
	return int(figures[0]), time.Duration(figures[1] * float64(time.Second)), nil
}

func lastLine(b []byte) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
