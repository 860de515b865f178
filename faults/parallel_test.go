package faults

import (
	"flag"
	"os"
	"testing"
)

// These tests wait far more than they compute, so more of them go on at a time than there are processors; -parallel overrides it.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
