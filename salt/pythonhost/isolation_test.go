package pythonhost

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"clustermaster/value"
)

// seenModule tells all that a module sees of its minion, by every way that Salt has.
const seenModule = `
import copy
import os

try:
    left
except NameError:
    left = []

def all_of_it():
    left.append(__grains__["id"])
    return {
        "left": left,
        "environ": os.environ.setdefault("SEEN", __grains__["id"]),
        "grains": copy.deepcopy(dict(__grains__)),
        "opts": copy.deepcopy(dict(__opts__["grains"])),
        "nested": [n for n in __opts__["grains"]["nested"]],
        "pillar": __salt__["pillar.get"]("owner"),
        "in_opts": copy.deepcopy(dict(__opts__["pillar"])),
        "get": __salt__["grains.get"]("nested:0"),
        "config": __salt__["config.get"]("owner"),
        "context": __context__.setdefault("seen", __grains__["id"]),
        "kind": __salt__["kind.name"](),
    }
`

var isolationSite = map[string]string{
	"ext/modules/seen.py":    seenModule,
	"ext/modules/kind_a.py":  kindModule("kernel", "Windows"),
	"ext/modules/kind_b.py":  kindModule("kernel", "FreeBSD"),
	"ext/modules/kind_c.py":  kindModule("os_family", "Debian"),
	"ext/modules/kind_d.py":  kindModule("os_family", "RedHat"),
	"ext/pillar/all_seen.py": "def ext_pillar(minion_id, pillar):\n    return __salt__['seen.all_of_it']()\n",
}

// kindModule is a module that only minions with a value of a grain have.
func kindModule(grain, val string) string {
	return fmt.Sprintf("__virtualname__ = 'kind'\ndef __virtual__():\n    return __virtualname__ "+
		"if __grains__[%q] == %q else False\ndef name():\n    return 'kind %[2]s'\n", grain, val)
}

// kinds are kernel, os_family and the grain's value by which the module kind is chosen.
var kinds = [][3]string{{"Linux", "Debian", "Debian"}, {"Windows", "Windows", "Windows"},
	{"Linux", "RedHat", "RedHat"}, {"FreeBSD", "FreeBSD", "FreeBSD"}}

// kindOf makes minions of several kinds, each with an id in all that it is.
func kindOf(i int) Minion {
	id := fmt.Sprintf("minion-%04d-", i)
	m, kind := minion(id), kinds[i%len(kinds)]
	m.Grains = m.Grains.Set("kernel", kind[0]).Set("os_family", kind[1]).Set("nested",
		[]any{id + "nested", []any{id}}).Set("owner", id)
	m.Pillar = value.Map{{Key: "owner", Value: id},
		{Key: "list", Value: []any{id, value.Map{{Key: "deep", Value: id}}}}}
	return m
}

// foreign returns what a minion was told that is not its own.
func foreign(m Minion, got any) string {
	text := fmt.Sprint(got)
	for _, part := range strings.Split(text, "minion-")[1:] {
		if "minion-"+part[:min(5, len(part))] != m.ID {
			return text
		}
	}
	var n int
	if _, err := fmt.Sscanf(m.ID, "minion-%d-", &n); err != nil {
		return err.Error()
	}
	if !strings.Contains(text, "kind "+kinds[n%len(kinds)][2]) || strings.Count(text, m.ID) < 10 {
		return text
	}
	return ""
}

// together is how many minions are served at the same time.
const together = 4

// interleaved makes calls for count minions of several kinds, some of them twice, in an order of
// chance and several at the same time. serve answers the calls of one minion. The result is what
// minions were told that is not their own.
func interleaved(count int, serve func(worker int, m Minion, calls []Call) ([]any, error)) string {
	order := rand.New(rand.NewPCG(1, 2)).Perm(count)
	order = append(order, order[:count/10]...)
	found := make([]strings.Builder, together)
	var all sync.WaitGroup
	for worker := range together {
		all.Go(func() {
			chance := rand.New(rand.NewPCG(1, uint64(worker)))
			for at := worker; at < len(order); at += together {
				m := kindOf(order[at])
				said, err := serve(worker, m, []Call{{Kind: Module, Fun: "seen.all_of_it"},
					{Kind: Pillar, Fun: "all_seen", Given: value.Map{}}}[chance.IntN(2):])
				if err != nil {
					fmt.Fprintf(&found[worker], "%s: %v\n", m.ID, err)
				}
				for _, v := range said {
					if text := foreign(m, v); text != "" {
						fmt.Fprintf(&found[worker], "%s was told %s\n", m.ID, text)
					}
				}
			}
		})
	}
	all.Wait()
	var out strings.Builder
	for i := range found {
		out.WriteString(found[i].String())
	}
	return out.String()
}

// inSessions serves the calls of each minion in a session of its own.
func inSessions(t *testing.T, h *Host) func(int, Minion, []Call) ([]any, error) {
	return func(_ int, m Minion, calls []Call) (out []any, err error) {
		session := h.Session(m)
		defer session.Close()
		for _, c := range calls {
			v, err := session.Call(t.Context(), c)
			if err != nil {
				return out, err
			}
			out = append(out, v)
		}
		return out, nil
	}
}

// TestNothingOfAnotherMinion makes calls for many minions of several kinds, interleaved by chance,
// and looks for what is another's: with children that serve many, and with one for each.
func TestNothingOfAnotherMinion(t *testing.T) {
	t.Parallel()
	count := 200
	if os.Getenv("CLUSTERMASTER_LONG") != "" {
		count = 1000
	}
	for _, c := range []struct{ pillars, count int }{{DefaultPillars, count}, {1, count / 4}} {
		t.Run(fmt.Sprint(c.pillars), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "3008.3", isolationSite, func(o *Options) {
				o.Children, o.Pillars = 6, c.pillars
			})
			if found := interleaved(c.count, inSessions(t, s.host)); found != "" {
				t.Error(found)
			}
			sessions := c.count + c.count/10
			least := (sessions + c.pillars - 1) / c.pillars
			if n := int(s.host.Status().Started); n < least || c.pillars > 1 && n > least+together ||
				c.pillars == 1 && n > least {
				t.Errorf("%d children for %d pillars", n, sessions)
			}
		})
	}
}

// Mistakes of a host whose children serve one minion after the other, made in its program.
const (
	bindOnce = `                if self.bound is not None:
                    self.forget()
                self.bound = Bound(self.salt, message["bind"], self)
`
	keepEach = `                kept = self.__dict__.setdefault("kept", {})
                who = message["bind"]["id"]
                if who not in kept:
                    kept[who] = Bound(self.salt, message["bind"], self)
                self.bound = kept[who]
`
	keepOne = `                if self.bound is None:
                    self.bound = Bound(self.salt, message["bind"], self)
                m, b = message["bind"], self.bound
                b.minion, b.pillar = m, m["pillar"]
                for one in (b.functions, b.functions.pack["__salt__"]):
                    one.pack["__grains__"], one.pack["__pillar__"] = m["grains"], m["pillar"]
                b.functions.pack["__context__"].clear()
`
	everywhere = `                for one in (b.functions, b.functions.pack["__salt__"]):
                    for at in [one.opts, one.pack.get("__opts__")] + [f.__globals__.get("__opts__") for f in vars(one)["_dict"].values()]:
                        if at is not None and not callable(getattr(at, "value", None)):
                            at["grains"], at["pillar"] = m["grains"], m["pillar"]
`
	ownName  = `self.base = f"{BASE_NAME}{Bound.count or ''}"`
	forgets  = "        del sys.modules[name]\n"
	restores = "        self.surroundings.restore()\n"
)

// mistaken is the number of minions of a run with a mistake, all served by a few children.
const mistaken = 20

// TestMistakesAreSeen puts back what a host that shares children can do wrong, each in a copy of
// its program: the look of TestNothingOfAnotherMinion finds each.
func TestMistakesAreSeen(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]*strings.Replacer{
		"two loaders of one name": strings.NewReplacer(bindOnce, keepEach, ownName,
			"self.base = BASE_NAME"),
		"only the packs are swapped":  strings.NewReplacer(bindOnce, keepOne),
		"modules are not loaded anew": strings.NewReplacer(forgets, "        pass\n"),
		"the environment stays":       strings.NewReplacer(restores, ""),
		"modules are chosen by the grains of another minion": strings.NewReplacer(bindOnce,
			keepOne+everywhere),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := change.Replace(program)
			if changed == program {
				t.Fatal("nothing was changed")
			}
			s := newSite(t, "3008.3", isolationSite, func(o *Options) {
				o.program, o.Children = changed, 1
			})
			found := interleaved(mistaken, inSessions(t, s.host))
			if !strings.Contains(found, " was told ") {
				t.Errorf("found only: %s", found)
			}
		})
	}
}
