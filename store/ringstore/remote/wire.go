package remote

import (
	"fmt"

	"clustermaster/store/ringstore/disk"
	"clustermaster/store/ringstore/ringpb"
)

// ToWire returns a record as a message; it shares the value.
func ToWire(r *disk.Record) *ringpb.Record {
	return &ringpb.Record{
		Space: uint32(r.Space), Place: []byte(r.Place), Name: []byte(r.Name), Value: r.Value,
		Clock: r.Version.Clock, Node: r.Version.Node, Expires: disk.UnixSeconds(r.Expires),
		Flags:     uint32(r.Flags),
		Partition: uint32(r.Partition),
	}
}

// FromWire is the inverse of ToWire. Callers then use Check.
func FromWire(r *ringpb.Record) disk.Record {
	return disk.Record{
		Key: disk.Key{Space: disk.Space(r.GetSpace()), Place: string(r.GetPlace()),
			Name: string(r.GetName())},
		Value: r.GetValue(), Version: disk.Version{Clock: r.GetClock(), Node: r.GetNode()},
		Expires: disk.SecondsTime(r.GetExpires()), Partition: int(r.GetPartition()),
		Flags: uint8(r.GetFlags()),
	}
}

// Check refuses a record that no master of ours sends, and one with a value above a bound in bytes.
func Check(r *disk.Record, maxValue int) error {
	switch {
	case r.Key.Check() != nil:
		return r.Key.Check()
	case len(r.Value) > maxValue:
		return fmt.Errorf("value of %d bytes, at most %d: %w", len(r.Value), maxValue,
			disk.ErrTooLarge)
	case r.Partition < 0 || r.Partition >= disk.MaxPartitions:
		return fmt.Errorf("partition %d: %w", r.Partition, disk.ErrTooLarge)
	case r.Expires.Unix() < 0 && !r.Expires.IsZero():
		return fmt.Errorf("expiry %v: %w", r.Expires, disk.ErrCorrupt)
	}
	return nil
}

// ToChange returns a change as a message.
func ToChange(c *disk.Change) *ringpb.Change {
	return &ringpb.Change{Record: ToWire(&c.Record), Owed: c.Owed, StandIn: c.StandIn,
		Under: c.Under}
}

// FromChange is the inverse of ToChange.
func FromChange(c *ringpb.Change) disk.Change {
	return disk.Change{Record: FromWire(c.GetRecord()), Owed: c.GetOwed(),
		StandIn: c.GetStandIn(), Under: c.GetUnder()}
}
