package output

import (
	"regexp"
	"strconv"
	"strings"

	"clustermaster/value"
)

var countInID = regexp.MustCompile(`\((\d+)\)$`)

// compressedCount returns how many states a compressed one stands for.
func compressedCount(parts []string) int {
	if len(parts) == 4 {
		if m := countInID.FindStringSubmatch(parts[1]); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil {
				return n
			}
		}
	}
	return 1
}

// compressIDs merges the states with the same id, sls and result into one (option
// state_compress_ids). The merged state has the earliest start, the sum of the durations and the
// changes by name. Data of another shape stays as it is.
func compressIDs(hosts value.Map) value.Map {
	out := make(value.Map, 0, len(hosts))
	for _, p := range hosts {
		states, ok := p.Value.(value.Map)
		if !ok {
			return hosts
		}
		joined, ok := compressHost(states)
		if !ok {
			return hosts
		}
		out = append(out, value.Pair{Key: p.Key, Value: joined})
	}
	return out
}

func compressHost(states value.Map) (value.Map, bool) {
	groups := make([]string, len(states))
	sizes := map[string]int{}
	for i, p := range states {
		info, ok := p.Value.(value.Map)
		if !ok {
			return nil, false
		}
		words := []string{strings.Split(value.Str(p.Key), "_|-")[0]}
		for _, key := range []string{"__id__", "__sls__", "result"} {
			v, ok := info.Get(key)
			if !ok {
				return nil, false
			}
			words = append(words, value.Str(v))
		}
		groups[i] = strings.Join(words, "_")
		sizes[groups[i]]++
	}
	out := value.Map{}
	for i, p := range states {
		info := p.Value.(value.Map)
		if sizes[groups[i]] == 1 {
			out = out.Set(value.Str(p.Key), info)
			continue
		}
		parts := strings.Split(value.Str(p.Key), "_|-")
		if len(parts) != 4 {
			return nil, false
		}
		id, _ := info.Get("__id__")
		sls, _ := info.Get("__sls__")
		result, _ := info.Get("result")
		parts[2] = "state_compressed_" + value.Str(sls) + "_" + value.Str(id) + "_" +
			value.Str(result)
		parts[1] = value.Str(id) + " (" + strconv.Itoa(sizes[groups[i]]) + ")"
		tag := strings.Join(parts, "_|-")
		if first, ok := out.Get(tag); ok {
			info = joinStates(first.(value.Map), info)
		}
		out = out.Set(tag, info)
	}
	return out, true
}

// joinStates merges one more state into the compressed one.
func joinStates(first, more value.Map) value.Map {
	out := append(value.Map(nil), first...)
	if runNumber(more) < runNumber(first) {
		n, _ := more.Get("__run_num__")
		out = out.Set("__run_num__", n)
	}
	a, _ := first.Get("duration")
	b, _ := more.Get("duration")
	x, _ := toFloat(a)
	y, _ := toFloat(b)
	sum, _ := strconv.ParseFloat(strconv.FormatFloat(x+y, 'f', 3, 64), 64)
	out = out.Set("duration", sum)
	if s, t := first.String("start_time"), more.String("start_time"); t < s {
		out = out.Set("start_time", t)
	}
	mine, _ := first.Get("changes")
	theirs, _ := more.Get("changes")
	if !value.Truth(theirs) {
		return out
	}
	name, _ := more.Get("name")
	all := value.Map{}
	if m, ok := mine.(value.Map); ok && len(m) > 0 {
		if have, ok := m.Get("compressed changes"); ok && value.Truth(have) {
			all, _ = have.(value.Map)
		} else {
			firstName, _ := first.Get("name")
			all = value.Map{{Key: firstName, Value: m}}
		}
	}
	all = append(value.Map(nil), all...).Set(value.Str(name), theirs)
	return out.Set("changes", value.Map{{Key: "compressed changes", Value: all}})
}
