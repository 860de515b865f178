// Package monitoring has the files that a site's Prometheus and Grafana load: alert rules, their
// tests and a dashboard.
//
// Lives here: alerts.yml, alerts_test.yml, dashboard.json, and what a picture of the dashboard
// needs of it. Does not: make metrics, ask Prometheus, draw.
package monitoring

import _ "embed"

// Alerts are the alert rules of Prometheus, as they are shipped.
//
//go:embed alerts.yml
var Alerts string

// Dashboard is the dashboard of Grafana, as it is shipped.
//
//go:embed dashboard.json
var Dashboard []byte
