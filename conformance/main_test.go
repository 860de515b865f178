package conformance

import (
	"testing"

	"clustermaster/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m, 0) }
