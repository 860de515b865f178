package conformance

import (
	"fmt"
	"os"
	"testing"

	"clustermaster/test/e2e"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(assailants); order != "" {
		if err := assail(order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	e2e.Main(m, 5)
}
