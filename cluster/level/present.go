//go:build !future

package level

var (
	laterReleases []string
	later         []Entry
)
