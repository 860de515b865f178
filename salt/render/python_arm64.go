package render

import "embed"

//go:embed wheels/arm64/*.whl
var archWheels embed.FS

const archDir = "wheels/arm64"

// pythonSum is the checksum of the embedded Python after unpacking (treeSum).
const pythonSum = "9bffe1f5d05535c2136b7ac6d1715b6a9c122e341280c79df3abe4d64bbadd4c"

// largeUnneeded are the largest files of the embedded Python that pruneTree removes, with their
// sizes in bytes.
var largeUnneeded = map[string]int64{
	"bin/python": 20574176, "bin/python3": 20574176,
	"lib/libpython3.14.so": 20535880, "lib/libpython3.14.so.1.0": 20535880,
}
