package dev

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"clustermaster/lb"
	"clustermaster/tools/simminion"
)

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

// startBalancer puts HAProxy with the shipped config, or the built-in balancer, in front of the
// masters.
func (p *Playground) startBalancer(ctx context.Context) error {
	if p.cfg.HAProxy == "" {
		p.say("a TCP balancer on %s", p.front)
		b := NewBalancer(p.hosts, healthPort, p.cfg.Log)
		p.wg.Go(func() {
			if err := b.Serve(ctx, p.front, pubPort, reqPort); err != nil {
				p.cfg.Log.Error("balancer stopped", "err", err)
			}
		})
		return nil
	}
	p.say("HAProxy on %s with %s", p.front, p.cfg.Template)
	text, err := os.ReadFile(p.cfg.Template)
	if err != nil {
		return fmt.Errorf("read HAProxy config: %w", err)
	}
	servers := make([]lb.Server, len(p.hosts))
	for i, h := range p.hosts {
		servers[i] = lb.Server{Name: fmt.Sprintf("master%d", i+1), Addr: h}
	}
	filled, err := lb.FillIn(lb.WithoutRoot(string(text)), p.front, servers)
	if err != nil {
		return fmt.Errorf("fill in %s: %w", p.cfg.Template, err)
	}
	path := filepath.Join(p.dir, "haproxy.cfg")
	if err := os.WriteFile(path, []byte(filled), 0o600); err != nil {
		return fmt.Errorf("write HAProxy config: %w", err)
	}
	return p.start("haproxy", p.cfg.HAProxy, "-db", "-f", path)
}

// startMinions starts one real minion of each virtual environment, or simulated ones.
func (p *Playground) startMinions(ctx context.Context) error {
	if p.cfg.Venvs == "" {
		p.say("%d simulated minions sign in through %s", p.cfg.Simulated, p.front)
		for i := range p.cfg.Simulated {
			key, err := simminion.NewKey(2048)
			if err != nil {
				return fmt.Errorf("make a minion's key: %w", err)
			}
			id := fmt.Sprintf("sim%d", i+1)
			m, err := simminion.New(simminion.Config{
				ID: id, Key: key, Master: fmt.Sprintf("%s:%d", p.front, reqPort),
				Release:        []string{"3006.28", "3007.15", "3008.3"}[i%3],
				AcceptanceWait: acceptanceWait, ReconMax: reconMax, Log: p.cfg.Log,
			})
			if err != nil {
				return fmt.Errorf("make minion %s: %w", id, err)
			}
			p.minions = append(p.minions, id)
			p.wg.Go(func() {
				if err := m.Run(ctx); err != nil && ctx.Err() == nil {
					p.cfg.Log.Error("simulated minion ended", "minion", id, "err", err)
				}
			})
		}
		return nil
	}
	programs, err := filepath.Glob(filepath.Join(p.cfg.Venvs, "salt-*", "bin", "salt-minion"))
	if err != nil || len(programs) == 0 {
		return fmt.Errorf("find salt-minion: no %s/salt-*/bin/salt-minion; make venvs makes them",
			p.cfg.Venvs)
	}
	programs = newest(programs)
	p.say("real salt-minion of %d releases sign in through %s", len(programs), p.front)
	for _, program := range programs {
		id := "minion-" + releaseOf(program)
		dir := filepath.Join(p.dir, id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make minion folder: %w", err)
		}
		text := fmt.Sprintf("id: %s\nmaster: %s\nroot_dir: %s\nuser: %s\nacceptance_wait_time: %d\nrecon_default: 1000\nrecon_max: %d\n",
			id, p.front, dir, userName(), int(acceptanceWait.Seconds()), reconMax.Milliseconds())
		if err := os.WriteFile(filepath.Join(dir, "minion"), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write minion config: %w", err)
		}
		if err := p.start(id, program, "-c", dir); err != nil {
			return err
		}
		p.minions = append(p.minions, id)
	}
	return nil
}

// releaseOf is the release whose virtual environment a program is in.
func releaseOf(program string) string {
	return strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(program))), "salt-")
}

// newest keeps the newest release of each major version. Tests make environments of older ones too,
// whose minions sign in only with a lower minimum_auth_version.
func newest(programs []string) []string {
	version := func(program string) (major string, minor int) {
		major, rest, _ := strings.Cut(releaseOf(program), ".")
		minor, _ = strconv.Atoi(rest)
		return major, minor
	}
	slices.SortFunc(programs, func(a, b string) int {
		major, minor := version(a)
		otherMajor, otherMinor := version(b)
		return cmp.Or(strings.Compare(major, otherMajor), otherMinor-minor)
	})
	return slices.CompactFunc(programs, func(a, b string) bool {
		major, _ := version(a)
		otherMajor, _ := version(b)
		return major == otherMajor
	})
}

// A playground's minions are faster than Salt's defaults, which suit thousands of minions.
const (
	acceptanceWait = 2 * time.Second
	reconMax       = 2 * time.Second
)
