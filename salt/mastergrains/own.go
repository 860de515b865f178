package mastergrains

import (
	"errors"
	"io/fs"
	"log/slog"

	"clustermaster/store/smallfile"
	"clustermaster/value"
	"clustermaster/value/yaml11"
)

// maxFile bounds the grains file, in bytes.
const maxFile = 16 << 20

// Own are the grains of one master: those of its machine, and over them what its administrator
// sets.
type Own struct {
	ID, Release string
	File        string // the grains file, beside the configuration
	// Option reads the option grains as the configuration has it now.
	Option func() (any, error)
	Log    *slog.Logger
}

// Load reads file and option anew, as Salt does. The file's grains take the place of the machine's,
// those of the option the place of both. What can't be read is logged and left out.
func (o Own) Load() value.Map {
	grains := Of(o.ID, o.Release)
	if of, err := readGrains(o.File); err != nil {
		o.Log.Warn("the grains file is left out; mend it", "path", o.File, "err", err)
	} else {
		grains = value.Update(grains, of)
	}
	v, err := o.Option()
	if err != nil {
		o.Log.Warn("the option grains is left out; mend the configuration", "err", err)
	}
	of, _ := v.(value.Map)
	return value.Update(grains, of)
}

// readGrains reads a grains file; a missing one, and one without a map, has none.
func readGrains(path string) (value.Map, error) {
	b, err := smallfile.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := yaml11.Load(b)
	grains, _ := v.(value.Map)
	return grains, err
}
