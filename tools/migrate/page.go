package migrate

import (
	"fmt"
	"io"
	"strings"

	"clustermaster/config"
)

// fates are the sections of the page, the worst first.
var fates = []config.Fate{config.Refused, config.Python, config.Differently, config.Works}

// print writes the plan for people.
func (p *Plan) print(w io.Writer) {
	release := p.Release
	if release == "" {
		release = "no salt-master found in PATH"
	}
	fmt.Fprintf(w, "Master %s, %s (%s), configuration %s\n", p.Master, p.Setup, release, p.ConfFile)
	if !p.options.HasFile() {
		fmt.Fprintf(w, "Attention: %s\n", p.options.NoFile())
	}
	fmt.Fprintf(w, "Founder: %s\nMaster key: %s\n", p.Founder, p.MasterKey)
	fmt.Fprintf(w, "Keys: %d accepted, %d pending, %d rejected, %d denied\n", p.Keys["minions"],
		p.Keys["minions_pre"], p.Keys["minions_rejected"], p.Keys["minions_denied"])
	fmt.Fprintf(w,
		"Taken over: keys of all states, %d jobs, data of %d minions, %d auto-sign stubs, %d "+
			"tokens\n", p.Caches.Jobs, p.Caches.Minions, p.Caches.Stubs, p.Caches.Tokens)
	fmt.Fprintf(w, "Disk %s: %d MiB free, %d MiB needed\n", p.Disk.Path, p.Disk.Free>>20,
		p.Disk.Need>>20)
	for _, port := range p.Ports {
		state := "free"
		if port.Text != "" {
			state = port.Text
		}
		fmt.Fprintf(w, "Port %s %s: %s\n", port.Option, port.Addr, state)
	}
	for _, fate := range fates {
		var plain []string
		shown := false
		for _, v := range p.Options {
			switch {
			case v.Fate != fate:
			case v.Text == "":
				plain = append(plain, v.Option)
			default:
				if !shown {
					fmt.Fprintf(w, "\nOptions: %s\n", fate)
					shown = true
				}
				fmt.Fprintf(w, "  %s: %s: %s\n", place(v), v.Option, v.Text)
			}
		}
		if len(plain) > 0 {
			fmt.Fprintf(w, "\nOptions: %s as before\n  %s\n", fate, strings.Join(plain, " "))
		}
	}
	if len(p.Modules) > 0 {
		fmt.Fprintf(w, "\nModules and templates\n")
	}
	for _, m := range p.Modules {
		at := m.Path
		if m.Line > 0 {
			at = fmt.Sprintf("%s:%d", m.Path, m.Line)
		}
		fmt.Fprintf(w, "  %s: %s: %s\n", at, m.Fate, m.Text)
	}
	if len(p.Minions) > 0 {
		fmt.Fprintf(w, "\nMinions\n")
	}
	for _, f := range p.Minions {
		fmt.Fprintf(w, "  %s: %d %s; %s\n", f.Fate, f.Count, f.Text, f.Remedy)
	}
	if len(p.Packages) > 0 {
		fmt.Fprintf(w, "\nPackages\n")
	}
	for _, k := range p.Packages {
		fmt.Fprintf(w, "  %s: %s; %s\n", k.Name, k.Text, k.Remedy)
	}
	if len(p.Conflicts) > 0 {
		fmt.Fprintf(w, "\nKeys that do not agree\n")
	}
	for _, c := range p.Conflicts {
		fmt.Fprintf(w, "  %s: %s; %s\n", c.ID, c.Text, c.Remedy)
	}
	blockers := p.blockers()
	if len(blockers) == 0 {
		fmt.Fprintf(w,
			"\nNothing keeps this master from being replaced: clustermaster migrate apply\n")
		return
	}
	fmt.Fprintf(w, "\nTo be changed before clustermaster migrate apply:\n")
	for _, b := range blockers {
		fmt.Fprintf(w, "  %s\n", b)
	}
}
