package render

import "embed"

//go:embed wheels/amd64/*.whl
var archWheels embed.FS

const archDir = "wheels/amd64"

// pythonSum is the checksum of the embedded Python after unpacking (treeSum).
const pythonSum = "a9603a2cd25cf1c135bbba47d5e09dcf5ab737d5fd084099afb6c495dee02778"
