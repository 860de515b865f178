//go:build future

package level

// A program built with the tag "future" is one level ahead, so that tests can run today's release
// beside the next one.
var laterReleases = []string{"0.3.0"}

var later = []Entry{
	{Command, "Future", 0x7f, 3},
	{Record, "future", 0xff, 3},
	{Field, "AllowMemberWhy.why", 0, 3},
	{RPC, "/clustermaster.future.Future/Ping", 0, 3},
}
