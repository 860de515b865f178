package ringstore

import (
	"testing"
	"time"

	"clustermaster/store/ringstore/ringpb"
)

func TestOutlook(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		r        *ringpb.StatusReply
		expected uint64
		eta      time.Duration
	}{
		{"nothing filled yet", &ringpb.StatusReply{Changing: 192, Pending: 192, Moved: 5000,
			Filling: 1e6}, 0, -1},
		{"a quarter", &ringpb.StatusReply{Changing: 192, Pending: 144, Moved: 5000, Filling: 2e6},
			20000, 6 * time.Second},
		{"from an older master", &ringpb.StatusReply{Pending: 7, Moved: 5000}, 0, -1},
	}
	for _, tt := range tests {
		if expected, eta := outlook(tt.r); expected != tt.expected || eta != tt.eta {
			t.Errorf("%s: got %d bytes, %v; want %d, %v", tt.name, expected, eta, tt.expected,
				tt.eta)
		}
	}
}
