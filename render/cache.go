package render

import "crypto/sha256"

// pure are the functions whose result follows from their arguments and the
// context, so that a render that called nothing else may be kept.
var pure = map[string]bool{
	"config.get": true, "config.option": true, "defaults.merge": true, "grains.filter_by": true, "grains.get": true,
	"grains.has_value": true, "grains.item": true, "grains.items": true, "hashutil.base64_b64decode": true,
	"hashutil.base64_b64encode": true, "hashutil.md5_digest": true, "hashutil.sha256_digest": true, "hashutil.sha512_digest": true,
	"match.filter_by": true, "pillar.get": true, "slsutil.merge": true,
	"slsutil.merge_all": true, "slsutil.update": true, "test.echo": true,
}

func isPure(fun string) bool { return pure[fun] }

// dependency is a file that a render looked for.
type dependency struct {
	saltenv, path string
	sum           [sha256.Size]byte
	found         bool
}

func newDependency(saltenv, path string, data []byte, found bool) dependency {
	return dependency{saltenv, path, sha256.Sum256(data), found}
}

type cache struct{}

func newCache(int64, *metrics) *cache { return &cache{} }
