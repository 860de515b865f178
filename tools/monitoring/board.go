package monitoring

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Board is what a drawing of the dashboard needs of it, in the words of Grafana's JSON.
type Board struct {
	Title       string
	Annotations struct{ List []struct{ Name, Expr string } }
	Panels      []Panel
}

// Panel is a row's heading or a panel with queries.
type Panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ H, W, X, Y int } // of 24 columns
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Min        *float64
			Thresholds struct {
				Steps []struct {
					Color string
					Value *float64 // nil: any
				}
			}
		}
	}
	Targets []Target
	Options struct{ TextMode string }
}

// Target is a query of a panel.
type Target struct {
	Expr, LegendFormat string
	Instant            bool
}

// ParseBoard reads the JSON of a dashboard.
func ParseBoard(text []byte) (Board, error) {
	var b Board
	if err := json.Unmarshal(text, &b); err != nil {
		return Board{}, fmt.Errorf("read the dashboard: %w", err)
	}
	return b, nil
}

// Query fills the variables of a query as Grafana does when all jobs and masters are chosen. Rates
// are taken over four times the interval at which Prometheus fetches metrics.
func Query(expr string, interval time.Duration) string {
	rate := fmt.Sprintf("%ds", int(4*interval/time.Second))
	return strings.NewReplacer("$__rate_interval", rate, "$job", ".*", "$instance",
		".*").Replace(expr)
}

// Recording is what a Prometheus answered to all queries of the dashboard. Times are seconds since
// the epoch.
type Recording struct {
	From, To, Step int64
	Notes          []string // what the cluster was and what happened to it
	Alerts         []Series // answers to the annotations
	// Panels have, by the panel's id, the answers to each query.
	Panels map[int][][]Series
}

// Series is one series of an answer of Prometheus.
type Series struct {
	Metric map[string]string
	Values [][2]any // time, number as text
}

// Point returns the time and the number of one of the values.
func (s Series) Point(i int) (at, v float64) {
	at, _ = s.Values[i][0].(float64)
	text, _ := s.Values[i][1].(string)
	v, _ = strconv.ParseFloat(text, 64) // NaN and infinities too
	return at, v
}

var label = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// Legend fills a legend's format with the labels of the series.
func (s Series) Legend(format string) string {
	return label.ReplaceAllStringFunc(format, func(m string) string {
		return s.Metric[label.FindStringSubmatch(m)[1]]
	})
}
