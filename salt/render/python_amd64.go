package render

import "embed"

//go:embed wheels/amd64/*.whl
var archWheels embed.FS

const archDir = "wheels/amd64"

// pythonSum is the checksum of the embedded Python after unpacking (treeSum).
const pythonSum = "a9603a2cd25cf1c135bbba47d5e09dcf5ab737d5fd084099afb6c495dee02778"

// largeUnneeded are the largest files of the embedded Python that pruneTree removes, with their
// sizes in bytes.
var largeUnneeded = map[string]int64{
	"bin/python": 29437792, "bin/python3": 29437792,
	"lib/libpython3.14.so": 20878336, "lib/libpython3.14.so.1.0": 20878336,
}
