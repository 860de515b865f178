package pythonhost

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clustermaster/value"
)

// BenchmarkChild makes a child, binds it to a minion and calls one function of a site, as one
// pillar does.
func BenchmarkChild(b *testing.B) {
	for _, release := range releases {
		b.Run(release, func(b *testing.B) {
			s := newSite(b, release, map[string]string{"ext/modules/fact.py": factModule,
				"ext/pillar/owners.py": "def ext_pillar(minion_id, pillar):\n    return {'owner': minion_id}\n"}, nil)
			first := s.host.Session(minion("first"))
			defer first.Close()
			call(b, first, "fact.about")
			b.Run("fork", func(b *testing.B) {
				for range b.N {
					c, err := s.host.take(b.Context(), true)
					if err != nil {
						b.Fatal(err)
					}
					s.host.put(c, false)
				}
			})
			for _, keep := range []bool{false, true} {
				b.Run(map[bool]string{false: "new/function", true: "function"}[keep], func(b *testing.B) {
					for i := range b.N {
						one := s.host.Session(minion("m" + strconv.Itoa(i)))
						call(b, one, "fact.about")
						one.Close()
						if !keep {
							s.host.endSpare(nil)
						}
					}
				})
			}
			b.Run("ext_pillar", func(b *testing.B) {
				for i := range b.N {
					one := s.host.Session(minion("m" + strconv.Itoa(i)))
					if _, err := one.Call(b.Context(),
						Call{Kind: Pillar, Fun: "owners", Given: value.Map{}}); err != nil {
						b.Fatal(err)
					}
					one.Close()
				}
			})
			b.Run("again", func(b *testing.B) {
				for range b.N {
					call(b, first, "fact.about")
				}
			})
			b.Run("memory", func(b *testing.B) { // of one child, and each of four
				ended := slices.Clone(s.host.spare)
				s.host.endSpare(nil)
				for _, c := range ended {
					<-c.gone
				}
				b.ReportMetric(float64(pss(b, first.child.pid))/1024, "MB-1")
				for i := range 3 {
					more := s.host.Session(minion("more" + strconv.Itoa(i)))
					defer more.Close()
					call(b, more, "fact.about")
				}
				b.ReportMetric(float64(pss(b, first.child.pid))/1024, "MB-4")
				b.ReportMetric(float64(pss(b, s.host.Status().PID))/1024, "MB-server-4")
			})
		})
	}
}

// pss is a process's share of memory in KiB.
func pss(tb testing.TB, pid int) int {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			n, _ := strconv.Atoi(strings.Fields(v)[0])
			return n
		}
	}
	return 0
}
