package pythonhost

import (
	"context"
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

def all_of_it():
    return {
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
	"ext/modules/kind_a.py":  "__virtualname__ = 'kind'\ndef __virtual__():\n    return __virtualname__ if __grains__['kernel'] == 'Linux' else False\ndef name():\n    return 'kind Linux'\n",
	"ext/modules/kind_b.py":  "__virtualname__ = 'kind'\ndef __virtual__():\n    return __virtualname__ if __grains__['kernel'] == 'Windows' else False\ndef name():\n    return 'kind Windows'\n",
	"ext/pillar/all_seen.py": "def ext_pillar(minion_id, pillar):\n    return __salt__['seen.all_of_it']()\n",
}

// kindOf makes minions of two kinds, each with an id in all that it is.
func kindOf(i int) Minion {
	id := fmt.Sprintf("minion-%04d-", i)
	m := minion(id)
	kernel := "Linux"
	if i%2 == 1 {
		kernel = "Windows"
	}
	m.Grains = m.Grains.Set("kernel", kernel).Set("nested",
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
	if kernel := m.Grains.String("kernel"); !strings.Contains(text, "kind "+kernel) ||
		strings.Count(text, m.ID) < 10 {
		return text
	}
	return ""
}

// TestNothingOfAnotherMinion makes calls for many minions of two kinds, interleaved by chance, and
// looks for what is another's.
func TestNothingOfAnotherMinion(t *testing.T) {
	t.Parallel()
	count := 200
	if os.Getenv("CLUSTERMASTER_LONG") != "" {
		count = 1000
	}
	s := newSite(t, "3008.3", isolationSite, func(o *Options) { o.Children = 6 })
	const together = 4
	var all sync.WaitGroup
	for worker := range together {
		all.Add(1)
		go func() {
			defer all.Done()
			chance := rand.New(rand.NewPCG(1, uint64(worker)))
			for i := worker; i < count; i += together {
				m := kindOf(i)
				session := s.host.Session(m)
				for _, c := range []Call{{Kind: Module, Fun: "seen.all_of_it"},
					{Kind: Pillar, Fun: "all_seen", Given: value.Map{}}}[chance.IntN(2):] {
					v, err := session.Call(context.Background(), c)
					if err != nil {
						t.Errorf("%s: %v", m.ID, err)
					} else if text := foreign(m, v); text != "" {
						t.Errorf("%s was told %s", m.ID, text)
					}
				}
				session.Close()
			}
		}()
	}
	all.Wait()
	if n := s.host.Status().Started; n != uint64(count) {
		t.Errorf("%d children for %d minions", n, count)
	}
}

// What a host that keeps its children for several minions would do, each with one mistake.
const (
	bindOnce = `                self.bound = Bound(self.salt, message["bind"], self)
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
	ownName = `self.base = f"{BASE_NAME}{Bound.count or ''}"`
)

// TestMistakesAreSeen puts back what a host that shares children does wrong: the look at what
// minions are told finds each.
func TestMistakesAreSeen(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]*strings.Replacer{
		"none, with a loader of its own name for each minion": strings.NewReplacer(bindOnce,
			keepEach),
		"two loaders of one name": strings.NewReplacer(bindOnce,
			keepEach, ownName, "self.base = BASE_NAME"),
		"only the packs are swapped": strings.NewReplacer(bindOnce,
			keepOne),
		"modules are chosen by the grains of another minion": strings.NewReplacer(bindOnce,
			keepOne+everywhere),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := change.Replace(program)
			if changed == program {
				t.Fatal("nothing was changed")
			}
			s := newSite(t, "3008.3", isolationSite, func(o *Options) { o.program = changed })
			shared, err := s.host.take(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			defer s.host.put(shared)
			found := ""
			for _, i := range []int{0, 2, 0, 1, 0, 3, 2} {
				m := kindOf(i)
				c := Call{Kind: Module, Fun: "seen.all_of_it"}
				talk := &conversation{session: s.host.Session(m), child: shared, call: c,
					left: DefaultTimeout}
				v, err := talk.run(t.Context(),
					append(c.message(), value.Pair{Key: "bind", Value: m.message()}))
				if err != nil {
					t.Fatalf("%s: %v", m.ID, err)
				}
				found += foreign(m, v)
			}
			if strings.HasPrefix(name, "none") != (found == "") {
				t.Errorf("found %s", found)
			}
		})
	}
}
