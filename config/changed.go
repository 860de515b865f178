package config

import (
	"reflect"
	"slices"
)

// Changed lists the options whose values differ between two configurations, sorted.
func Changed(before, now *Options) []string {
	var names []string
	a, b := reflect.ValueOf(before).Elem(), reflect.ValueOf(now).Elem()
	inFields := make(map[string]bool)
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("opt")
		if name == "" {
			continue
		}
		inFields[name] = true
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	for _, o := range []struct{ these, those map[string]any }{{before.Extra, now.Extra},
		{now.Extra, before.Extra}} {
		for name, v := range o.these {
			if !inFields[name] && !reflect.DeepEqual(v, o.those[name]) &&
				!slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
