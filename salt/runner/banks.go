package runner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"clustermaster/salt/function"
	"clustermaster/value"
)

// Banks is the cache of the whole cluster.
type Banks interface {
	Store(ctx context.Context, bank, key string, val any) error
	Fetch(ctx context.Context, bank, key string) (val any, found bool, err error)
	List(ctx context.Context, bank string) (names []string, incomplete string, err error)
	// Flush and FlushBank report whether they removed anything.
	Flush(ctx context.Context, bank, key string) (bool, error)
	FlushBank(ctx context.Context, bank string) (bool, error)
	// Migrate imports the files of Salt's driver localfs below a cachedir; bank "" means all.
	Migrate(ctx context.Context, cachedir, bank string, dry bool) (keys map[string]int, failed int,
		err error)
	// Export writes such files; perBank is the layout of Salt 3008.
	Export(ctx context.Context, cachedir string, perBank bool) (files map[string]int, failed int,
		incomplete string, err error)
}

// cacheDrivers are the names that callers may use for the cluster's cache: its own, and those of
// Salt's drivers without a server.
var cacheDrivers = []string{"ring", "localfs", "mmap_cache"}

// CacheBanks is the part of the family cache that keeps operators' values. cachedir is this
// master's.
func CacheBanks(banks Banks, cachedir string) []Function {
	elsewhere := function.Opt("cachedir", nil)
	here := func(run func(ctx context.Context, c *Call) (any, error)) func(ctx context.Context,
		c *Call) (any, error) {
		return func(ctx context.Context, c *Call) (any, error) {
			if dir := c.Text("cachedir"); dir != "" &&
				strings.TrimRight(dir, "/") != strings.TrimRight(cachedir, "/") {
				return nil,
					fmt.Errorf("the cache is on all masters, not in %s; to import what a Salt master kept there, "+
						"run salt-run cache.migrate cachedir=%s", dir, dir)
			}
			return run(ctx, c)
		}
	}
	const banksDoc = `

bank
    A path such as mycache or cloud/active. The banks grains, pillar and mine hold the data of
    minions, by minion id.
`
	return []Function{
		{Name: "cache.store", Params: []function.Param{function.Need("bank"), function.Need("key"),
			function.Need("data"), elsewhere},
			Doc: "Store a value in a bank of the cache, which all masters share." + banksDoc + `
Example:

    salt-run cache.store mycache mykey 'The time has come'`,
			Run: here(func(ctx context.Context, c *Call) (any, error) {
				return nil, banks.Store(ctx, c.Text("bank"), c.Text("key"), c.Arg("data"))
			})},
		{Name: "cache.fetch", Params: []function.Param{function.Need("bank"), function.Need("key"),
			elsewhere},
			Doc: "Show a value of the cache; an empty map if there is none." + banksDoc + `
Example:

    salt-run cache.fetch mycache mykey`,
			Run: here(func(ctx context.Context, c *Call) (any, error) {
				v, found, err := banks.Fetch(ctx, c.Text("bank"), c.Text("key"))
				if !found {
					v = value.Map{}
				}
				return v, err
			})},
		{Name: "cache.list", Params: []function.Param{function.Need("bank"), elsewhere},
			Doc: "List the keys of a bank and the banks in it." + banksDoc + `
Example:

    salt-run cache.list mycache`,
			Run: here(func(ctx context.Context, c *Call) (any, error) {
				names, incomplete, err := banks.List(ctx, c.Text("bank"))
				if incomplete != "" {
					c.Warn(incomplete + ": entries may be missing here")
				}
				return value.Texts(names), err
			})},
		{Name: "cache.flush", Params: []function.Param{function.Need("bank"),
			function.Opt("key", nil), elsewhere},
			Doc: "Remove a key from the cache, or a bank with all keys and banks in it; False if " +
				"there is none." + banksDoc + `
Example:

    salt-run cache.flush mycache mykey
    salt-run cache.flush mycache`,
			Run: here(func(ctx context.Context, c *Call) (any, error) {
				if c.Given("key") {
					return banks.Flush(ctx, c.Text("bank"), c.Text("key"))
				}
				return banks.FlushBank(ctx, c.Text("bank"))
			})},
		{Name: "cache.migrate", Params: []function.Param{function.Opt("src_driver", "localfs"),
			function.Opt("dst_driver", "ring"), function.Opt("bank", nil), elsewhere,
			function.Opt("dry_run", false)},
			Doc: `Import the files of a Salt master's cache (driver localfs): its banks, and the grains, pillar
and mine of minions.

dst_driver
    ring, the cache of all masters; localfs and mmap_cache mean the same here.
bank
    Only this bank and those in it.
cachedir
    Where the files are; by default this master's cachedir.
dry_run
    Count only.

Values of the same key are replaced, except data that minions have sent since.

Example:

    salt-run cache.migrate dry_run=True
    salt-run cache.migrate cachedir=/mnt/old/var/cache/salt/master`,
			Run: func(ctx context.Context, c *Call) (any,
				error) {
				return migrate(ctx, c, banks, cachedir)
			}},
		{Name: "cache.cloud", Params: []function.Param{function.Need("tgt"),
			function.Opt("provider", nil)},
			Doc: `Show what Salt Cloud has cached of minions: nothing, as there is no Salt Cloud here.

Example:

    salt-run cache.cloud 'web*'`,
			Run: func(context.Context, *Call) (any, error) { return value.Map{}, nil }},
	}
}

func migrate(ctx context.Context, c *Call, banks Banks, cachedir string) (any, error) {
	src, dst := c.Arg("src_driver"), c.Arg("dst_driver")
	if src != "localfs" {
		return nil,
			fmt.Errorf("src_driver %s is not built in; only files of localfs can be imported",
				value.Repr(src))
	}
	if name, ok := dst.(string); !ok || !slices.Contains(cacheDrivers, name) {
		return nil,
			fmt.Errorf("dst_driver %s is not built in; the only driver is ring, on all masters", value.Repr(dst))
	}
	if c.Given("cachedir") {
		cachedir = c.Text("cachedir")
	}
	keys, failed, err := banks.Migrate(ctx, cachedir, c.Text("bank"), c.True("dry_run"))
	if err != nil {
		return nil, err
	}
	total := 0
	for _, n := range keys {
		total += n
	}
	action, noun := "Migrated", "entries"
	if c.True("dry_run") {
		action = "Would migrate"
	}
	if total == 1 {
		noun = "entry"
	}
	lines := []string{
		fmt.Sprintf("%s %s %s from %s → %s", action, thousands(total), noun, value.Repr(src),
			value.Repr(dst)),
		"  cachedir: " + cachedir,
	}
	if len(keys) > 0 {
		lines = append(lines, "  Banks:")
		for _, bank := range slices.Sorted(maps.Keys(keys)) {
			lines = append(lines, fmt.Sprintf("    %s: %s", bank, thousands(keys[bank])))
		}
	}
	if failed > 0 {
		lines = append(lines, fmt.Sprintf("  Errors: %s (check logs for details)",
			thousands(failed)))
	}
	if c.True("dry_run") {
		lines = append(lines, "  (dry-run — no data written)")
	}
	return strings.Join(lines, "\n"), nil
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}
