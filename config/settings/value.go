package settings

import "clustermaster/config"

// Value is config.Plain.
func Value(v any) any { return config.Plain(v) }

// Revealed is config.Revealed.
func Revealed(v any) any { return config.Revealed(v) }
