package settings

import (
	"clustermaster/config"
	"clustermaster/salt/engine"
)

// Engines returns the engines of the options engines and engines_everywhere.
func Engines(o *config.Options) []engine.Engine {
	return engine.Parse(Value(o.Extra["engines"]), o.EnginesEverywhere)
}
