package commands

import (
	"testing"

	"clustermaster/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m, 3) }
