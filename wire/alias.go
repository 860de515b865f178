package wire

import "clustermaster/value"

// Names that have moved to package value. Do not use them in new code.
type (
	Map    = value.Map
	Pair   = value.Pair
	Raw    = value.Raw
	RawMap = value.RawMap
)

// Functions that have moved to package value. Do not use them in new code.
var (
	Pack         = value.Pack
	PackNew      = value.PackNew
	Unpack       = value.Unpack
	UnpackMap    = value.UnpackMap
	UnpackRawMap = value.UnpackRawMap
)
