package checkup

import (
	"maps"
	"slices"
	"strings"
)

// maxNamed bounds how many options or parts of roots one finding names.
const maxNamed = 12

// Compare finds where masters differ. The findings belong to no single master.
func Compare(reports []Report) []Finding {
	c := new(checker)
	if len(reports) < 2 {
		return nil
	}
	options := make(map[string]map[string]string) // master to option to digest
	for _, r := range reports {
		options[r.Master] = r.Options
	}
	if lines := differences(options); len(lines) > 0 {
		for _, l := range lines {
			c.say("configuration", Warning,
				"write the same into the configuration of every master, and restart those that change one by one", "the option %s", l)
		}
	} else {
		c.say("configuration", Good, "", "the options of %d masters are the same", len(reports))
	}
	roots := make(map[string]bool)
	for _, r := range reports {
		for name := range r.Roots {
			roots[name] = true
		}
	}
	same := true
	for _, name := range slices.Sorted(maps.Keys(roots)) {
		parts := make(map[string]map[string]string)
		for _, r := range reports {
			parts[r.Master] = r.Roots[name]
		}
		for _, l := range differences(parts) {
			same = false
			remedy := "salt-run cluster.sync_roots on the master that has them right"
			if name == extensions {
				remedy = "salt-run cluster.sync_roots, then salt-run saltutil.sync_all"
			}
			c.say("roots", Warning, remedy, "%s: %s", name, l)
		}
	}
	if same {
		c.say("roots", Good, "", "file_roots and pillar_roots of %d masters hold the same",
			len(reports))
	}
	releases := make(map[string]bool)
	for _, r := range reports {
		releases[r.Release] = true
	}
	if len(releases) > 1 {
		c.say("releases", Notice, "end the upgrade; docs/upgrade.md", "masters run %s",
			strings.Join(slices.Sorted(maps.Keys(releases)), " and "))
	}
	return c.found
}

// differences says for each name that is not the same everywhere who has it otherwise than most, or
// not.
func differences(by map[string]map[string]string) (lines []string) {
	names := make(map[string]bool)
	for _, has := range by {
		for name := range has {
			names[name] = true
		}
	}
	masters := slices.Sorted(maps.Keys(by))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		groups := make(map[string][]string) // digest to masters
		for _, m := range masters {
			groups[by[m][name]] = append(groups[by[m][name]], m)
		}
		if len(groups) == 1 {
			continue
		}
		if len(lines) == maxNamed {
			return append(lines, "and more differ")
		}
		if without, some := groups[""]; some && len(groups) == 2 {
			lines = append(lines, name+" is missing on "+strings.Join(without, ", "))
			continue
		}
		var sets []string
		for _, g := range groups {
			sets = append(sets, strings.Join(g, ", "))
		}
		slices.Sort(sets)
		lines = append(lines, name+" differs between "+strings.Join(sets, " and "))
	}
	return lines
}
