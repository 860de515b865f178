package render

import "embed"

//go:embed wheels/arm64/*.whl
var archWheels embed.FS

const archDir = "wheels/arm64"

// pythonSum is the checksum of the embedded Python after unpacking (treeSum).
const pythonSum = "9bffe1f5d05535c2136b7ac6d1715b6a9c122e341280c79df3abe4d64bbadd4c"
